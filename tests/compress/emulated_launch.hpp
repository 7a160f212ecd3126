// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0

// The replacement of launch.cuh for an emulated GPU.
#pragma once

#ifdef ONEBIT_TEST_PTX
#include <string>
#include <typeinfo>

#include "compress/ptx_kernels.hpp"
#endif
#include <vector>

#include "compress/grouped/cuda/block_kernels.hpp"
#include "compress/sign/cuda/block_kernels.hpp"
#include "core/status.hpp"
#include "support/emulated_device.hpp"
#include "support/emulated_gpu.hpp"

namespace onebit::cuda {

/// Replaces an array of pointers that a kernel reads by one with the device's pointers, while this object lives.
template <typename Element>
class TranslatedArray {
  public:
    template <typename Translate>
    TranslatedArray(const Element*& array, std::size_t count, const Translate& translate)
        : elements_(array, array + count) {
        for (Element& element : elements_) translate(element);
        array = elements_.data();
    }
    TranslatedArray(const TranslatedArray&) = delete;
    TranslatedArray& operator=(const TranslatedArray&) = delete;

  private:
    std::vector<Element> elements_;
};

template <typename Pointer>
void translate(Pointer& pointer) {
    pointer = onebit_test::on_device(pointer);
}

// Translates further pointers of arguments, besides the arguments' own pointers.
inline auto translate_arrays(AverageEncodeArguments& arguments) {
    return TranslatedArray(arguments.messages, arguments.ranks, translate<const std::uint32_t*>);
}
inline auto translate_arrays(GroupedAverageEncodeArguments& arguments) {
    return TranslatedArray(arguments.messages, arguments.ranks, translate<const std::uint32_t*>);
}
inline auto translate_arrays(SealArguments& arguments) {
    return TranslatedArray(arguments.trailers, arguments.messages, translate<std::uint32_t*>);
}
template <typename Arguments>
int translate_arrays(Arguments& /*arguments*/) {
    return 0;
}

#ifdef ONEBIT_TEST_PTX
/// Runs a kernel's compiled code, instead of its source.
template <typename Arguments>
void run_kernel(const onebit_test::EmulatedThread& thread, const Arguments& arguments, Scratch& scratch) {
    static const std::string arguments_name = typeid(Arguments).name(); // N6onebit4cuda...
    static const onebit_test::PtxKernel kernel =
        onebit_test::ptx_kernels().at("_ZN6onebit4cuda6kernelINS0_" + arguments_name.substr(13) + "EEvT_");
    kernel(thread, &arguments, &scratch);
}
#else
template <typename Arguments>
void run_kernel(const onebit_test::EmulatedThread& thread, const Arguments& arguments, Scratch& scratch) {
    run(thread, arguments, scratch);
}
#endif

template <typename Arguments>
Status launch_emulated(const Arguments& arguments) {
    onebit_test::finish_copies();
    onebit_test::note_launch();
    Arguments translated = onebit_test::arguments_on_device(arguments);
    [[maybe_unused]] const auto& arrays = translate_arrays(translated);
    onebit_test::run_on_emulated_gpu<kWarps, Scratch>(
        rows_of(translated), blocks_of(translated),
        [&](const auto& thread, Scratch& scratch) { run_kernel(thread, translated, scratch); });
    return {};
}

} // namespace onebit::cuda
