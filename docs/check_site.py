#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Checks that a built site is complete: no link is broken, each public function is described, each message quoted on
the troubleshooting page is a message of the library.

  check_site.py HTML
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

sys.dont_write_bytecode = True
from doxygen_filter import names_of_functions  # noqa: E402

SOURCE = Path(__file__).resolve().parent.parent
CODE = ["src", "c_api", "python/onebit"]


class Page(HTMLParser):
    def __init__(self, file):
        super().__init__()
        self.ids = set()
        self.links = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src") and value is not None:
                self.links.add(value)


def broken_links(pages):
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.exists() or (parts.fragment and target in pages and parts.fragment not in pages[target].ids):
                yield f"{file.name}: {link} leads nowhere"


def missing_functions(pages):
    ids = set().union(*(page.ids for page in pages.values()))
    for name in sorted(names_of_functions(SOURCE / "include/onebit")):
        if f"c.{name}" not in ids:
            yield f"{name} is not described"


def unknown_messages():
    """The messages in bold quotes; "..." and numbers match any text."""
    files = [file for folder in CODE for kind in ("cpp", "hpp", "py") for file in (SOURCE / folder).rglob(f"*.{kind}")]
    code = re.sub(r'"\s*f?"', "", "".join(file.read_text(encoding="utf-8") for file in files))
    page = (SOURCE / "docs/troubleshooting.md").read_text(encoding="utf-8")
    for title in re.findall(r'^\*\*(".*")\*\*', page, re.MULTILINE):
        for message in re.findall(r'"([^"]+)"', title):
            for part in re.split(r"\.\.\.|\d+|\bnan\b", message):
                if part.strip() not in code:
                    yield f'troubleshooting.md: no message has "{part.strip()}"'


def main():
    folder = Path(sys.argv[1]).resolve()
    pages = {file: Page(file) for file in folder.rglob("*.html")}
    wrong = [*broken_links(pages), *missing_functions(pages), *unknown_messages()]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(pages)} pages, {len(names_of_functions(SOURCE / 'include/onebit'))} functions: nothing is missing")


if __name__ == "__main__":
    main()
