# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""A wheel that has the C library in onebit/lib is for this platform and any Python; one without is for any platform.

  cp build/release/libonebit*.so.0.1 python/onebit/lib/ && pip wheel --no-deps python
"""

from pathlib import Path

from setuptools import Distribution, setup

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

HAS_LIBRARY = any(Path(__file__).parent.glob("onebit/lib/libonebit.so*"))


class PlatformWheel(bdist_wheel):
    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = not HAS_LIBRARY

    def get_tag(self):
        platform = super().get_tag()[2]
        return "py3", "none", platform if HAS_LIBRARY else "any"


class WithLibrary(Distribution):
    def has_ext_modules(self):  # hence its files are the platform's
        return HAS_LIBRARY


setup(cmdclass={"bdist_wheel": PlatformWheel}, distclass=WithLibrary)
