// Copyright 2026 The onebit authors
// SPDX-License-Identifier: Apache-2.0
#include "optim/cuda/cuda_passes.hpp"

#include <algorithm>
#include <utility>

namespace onebit {
namespace {

/// Elements shown to the host at a time: 1 MiB.
constexpr std::size_t kWindow = std::size_t{1} << 18;

static_assert(cuda::kSketchPieces == kSketchSegments);

template <typename T>
T* moved(T* pointer, std::size_t elements, onebit_datatype_t type) {
    using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    return pointer == nullptr ? nullptr : static_cast<Byte*>(pointer) + elements * bytes_of(type);
}

} // namespace

// ------------------------------------------------------------------------------------------------ what is told ----

cuda::Piece make_piece(const Segment& segment, std::size_t tensor_in_layout) {
    const Tensor& tensor = *segment.tensor;
    cuda::Piece piece = {};
    piece.offset = segment.offset;
    piece.parameters = segment.parameters();
    piece.gradients = moved(tensor.gradients, segment.begin, tensor.gradient_type);
    piece.copy = moved(tensor.copy, segment.begin, tensor.copy_type);
    piece.seed = sketch_seed(segment);
    piece.gradient_type = tensor.gradient_type;
    piece.copy_type = tensor.copy_type;
    piece.count = static_cast<unsigned>(segment.count);
    piece.group = static_cast<unsigned>(tensor.group);
    piece.tensor = static_cast<unsigned>(tensor_in_layout);
    return piece;
}

CudaPasses::CudaPasses(Bucket& bucket, const PassSettings& settings, Memory& memory, cuda::Stream stream,
                       const CudaNeeds& needs)
    : bucket_(bucket),
      settings_(settings),
      memory_(memory),
      stream_(stream),
      zeros_(needs.missing_gradients ? kBlockElements : 0, memory),
      groups_(settings.betas.size()),
      groups_there_(groups_.size(), memory),
      factor_there_(1, memory),
      factors_(bucket.layout.tensors().size()),
      factors_there_(factors_.size(), memory),
      steps_(factors_.size()),
      steps_there_(factors_.size(), memory),
      numbers_there_(needs.clipping || needs.norms ? bucket.layout.segments().size() : 0, memory),
      numbers_(numbers_there_.size()),
      sketches_(needs.clipping ? sketch_floats(bucket.layout.segments().size()) : 0, memory),
      runs_there_(needs.measuring ? bucket.layout.runs().size() : 0, memory),
      sketches_of_runs_(needs.measuring ? (bucket.layout.runs().size() - 1) * kSketchBuckets : 0, memory),
      m_before_(needs.refreshing && bucket.compresses ? bucket.layout.count() : 0, memory),
      work_(m_before_.size(), memory),
      nonfinite_(memory),
      window_(std::min(bucket.layout.count(), kWindow)) {
    make_pieces();
    if (bucket.compresses) {
        place_in_messages();
        first_piece_there_ = AlignedBuffer<std::size_t>(bucket.layout.first_segments().size(), memory);
        first_piece_there_.copy_from(bucket.layout.first_segments().data());
    }
    if (needs.measuring) runs_there_.copy_from(bucket.layout.runs().data());
    pieces_there_ = AlignedBuffer<cuda::Piece>(pieces_.size(), memory);
    pieces_there_.copy_from(pieces_.data());
}

void CudaPasses::make_pieces() {
    const Layout& layout = bucket_.layout;
    pieces_ = AlignedBuffer<cuda::Piece>(layout.segments().size(), cuda::pinned_memory());
    for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
        for (const Segment& segment : layout.segments_of_tensor(i)) {
            pieces_[segment.index] = make_piece(segment, i);
            pieces_[segment.index].gradients = gradients_of(segment);
        }
        addresses_.push_back({layout.tensors()[i]->gradients, layout.tensors()[i]->parameters});
    }
}

const void* CudaPasses::gradients_of(const Segment& segment) const {
    const Tensor& tensor = *segment.tensor;
    return tensor.gradients == nullptr ? zeros_.data() : moved(tensor.gradients, segment.begin, tensor.gradient_type);
}

/// Where a piece's bits and its scale are in the messages of all chunks, one after the other.
void CudaPasses::place_in_messages() {
    const Codec& codec = bucket_.allreduce->codec();
    std::size_t message = 0;
    for (const Chunk& chunk : messages().chunks()) {
        const WordRange trailer = codec.trailer_of(chunk);
        for (std::size_t b = 0; b < chunk.blocks(); ++b) {
            const Block block = {chunk, b};
            const WordRange words = codec.words_of({chunk, b, b + 1});
            const std::size_t scale = trailer.count > 0 ? trailer.begin : words.begin + words.count - 1;
            for (const Segment& segment : bucket_.layout.segments(block)) {
                cuda::Piece& piece = pieces_[segment.index];
                piece.first_sign = (message + words.begin) * kWordElements + (segment.offset - block.begin());
                piece.scale_word = message + scale;
            }
        }
        message += codec.row_words(chunk);
    }
}

/// The caller may have set other addresses.
Status CudaPasses::follow_addresses() {
    bool changed = false;
    for (std::size_t i = 0; i < addresses_.size(); ++i) {
        const Tensor& tensor = *bucket_.layout.tensors()[i];
        const Addresses now = {tensor.gradients, tensor.parameters};
        if (addresses_[i] == now) continue;
        if (!changed) ONEBIT_RETURN_IF_ERROR(pieces_guard_.await(stream_));
        changed = true;
        addresses_[i] = now;
        const std::span<const Segment> segments = bucket_.layout.segments_of_tensor(i);
        const std::size_t first = segments.front().index;
        for (const Segment& segment : segments) {
            pieces_[segment.index].gradients = gradients_of(segment);
            pieces_[segment.index].parameters = segment.parameters();
        }
        ONEBIT_RETURN_IF_ERROR(cuda::copy_later(pieces_there_.data() + first, pieces_.data() + first,
                                                segments.size() * sizeof(cuda::Piece), stream_));
    }
    return changed ? pieces_guard_.record(stream_) : Status();
}

cuda::Pieces CudaPasses::pieces() {
    for (std::size_t g = 0; g < groups_.size(); ++g) groups_[g] = {settings_.betas[g], settings_.updates[g]};
    note(groups_there_.update(groups_, stream_));
    return {pieces_there_.data(), pieces_.size(), groups_there_.data()};
}

// ------------------------------------------------------------------------------------------------------ a step ----

void CudaPasses::look_at_gradients(Look look, float limit) {
    limit_ = limit;
    note(follow_addresses());
    note(nonfinite_.begin(stream_));
    blocks_to_look_ = look == Look::kWhileEncoding ? first_piece_there_.size() - 1 : 0;
    if (blocks_to_look_ > 0) return;
    note(cuda::look({pieces(), look == Look::kGather ? bucket_.sum.data() : nullptr, nonfinite_.place(), limit},
                    stream_));
    note(nonfinite_.ask(stream_));
}

bool CudaPasses::has_looked(bool wait, Status* found) {
    bool known = false;
    unsigned long long first = cuda::kAllFinite;
    while (true) {
        *found = failure();
        if (!found->ok()) return true;
        if (blocks_to_look_ > 0) return false;
        note(nonfinite_.test(&known, &first));
        if (known) break;
        if (!wait) return false;
        note(cuda::wait_for(stream_));
    }
    if (first != cuda::kAllFinite) *found = catch_exceptions([&] { return describe_nonfinite(first); });
    return true;
}

/// Reads the caller's gradient: the sum may have other values by now.
Status CudaPasses::describe_nonfinite(std::size_t at) const {
    const std::span<const Segment> segments = bucket_.layout.segments();
    const Segment& segment = std::ranges::upper_bound(segments, at, {}, &Segment::offset)[-1];
    const std::size_t index = at - segment.offset;
    Tensor on_host = *segment.tensor;
    std::uint32_t bits = 0;
    memory_.copy(&bits, moved(on_host.gradients, segment.begin + index, on_host.gradient_type),
                 bytes_of(on_host.gradient_type));
    on_host.gradients = &bits;
    float widened = 0;
    return nonfinite_gradient(segment, index, *on_host.read_gradients(0, 1, reference_numeric_kernels(), &widened),
                              limit_);
}

void CudaPasses::adam(float factor) {
    note(factor_there_.update(std::span(&factor, 1), stream_));
    note(cuda::adam({pieces(), bucket_.sum.data(), factor_there_.data(), bucket_.m.data(), bucket_.v.data()}, stream_));
}

void CudaPasses::invert_denominator() {
    note(cuda::invert_denominator({pieces(), bucket_.precondition.data(), bucket_.precondition.data()}, stream_));
}

void CudaPasses::weigh_momenta() {
    note(cuda::weigh({pieces(), bucket_.precondition.data(), bucket_.m.data()}, stream_));
}

void CudaPasses::gather_masked(const FactorOf& factor) {
    note(cuda::gather_masked({pieces(), factors(factor), bucket_.precondition.data(), bucket_.masked_gradients.data()},
                             stream_));
}

void CudaPasses::thaw(const FactorOf& ratio) {
    note(cuda::thaw({pieces(), factors(ratio), bucket_.v.data(), bucket_.m.data()}, stream_));
}

/// The weights of gradients where updates are exchanged.
const float* CudaPasses::weights() const {
    return settings_.exchange_updates ? bucket_.precondition.data() : nullptr;
}

/// The factor that an exchanged m still needs.
const float* CudaPasses::precondition_of_messages() const {
    return settings_.exchange_updates ? nullptr : bucket_.precondition.data();
}

void CudaPasses::sum_squares(std::span<double> by_segment) {
    note(cuda::sum_squares({pieces(), bucket_.sum.data(), numbers_there_.data()}, stream_));
    memory_.copy(by_segment.data(), numbers_there_.data(), numbers_there_.bytes());
}

/// The host adds the sketches to those of other buckets, in the same order wherever the sketches lie.
void CudaPasses::sketch(std::span<float> sketches) {
    note(cuda::sketch({pieces(), sketches_.data()}, stream_));
    memory_.copy(sketches.data(), sketches_.data(), sketches_.bytes());
}

void CudaPasses::sketch_weighted(const FactorOf& factor, std::span<float> sketches) {
    note(cuda::sketch_weighted({pieces(), runs_there_.data(), bucket_.layout.runs().size() - 1, factors(factor),
                                bucket_.precondition.data(), sketches_of_runs_.data()},
                               stream_));
    memory_.copy(sketches.data(), sketches_of_runs_.data(), sketches_of_runs_.bytes());
}

/// From here on m is only in the message: nothing needs to be formed in the sum any more.
void CudaPasses::update_from_message() {
    bucket_.sum = {};
    note(cuda::compressed_update({pieces(), last_messages(), precondition_of_messages(), nullptr, nullptr}, stream_));
}

cuda::Messages CudaPasses::last_messages() const {
    const std::span<const std::uint32_t> mask = messages().mask();
    return {messages().last_messages(), mask.empty() ? nullptr : mask.data()};
}

/// An array by tensor, on the device.
const float* CudaPasses::factors(const FactorOf& factor_of) {
    std::ranges::transform(bucket_.layout.tensors(), factors_.begin(),
                           [&](const Tensor* tensor) { return factor_of(*tensor); });
    note(factors_there_.update(factors_, stream_));
    return factors_there_.data();
}

const float* CudaPasses::steps(const FactorOf& step_of) {
    std::ranges::transform(bucket_.layout.tensors(), steps_.begin(),
                           [&](const Tensor* tensor) { return step_of(*tensor); });
    note(steps_there_.update(steps_, stream_));
    return steps_there_.data();
}

// ---- what is encoded ----

/// The values from prepare_source, or the gradients from where they lie.
class CudaPasses::EncodedSource final : public ValueSource, public cuda::SliceEncoder {
  public:
    explicit EncodedSource(CudaPasses& passes) : passes_(passes) {}
    BlockValues read(const Block& block, float*) const override {
        if (passes_.encoded_ == nullptr) return {.encoder = this};
        return {passes_.encoded_ + block.begin()};
    }
    Status encode(const cuda::Rows<cuda::BlendEncoding>& slices) const override {
        return passes_.encode_gradients(slices);
    }

  private:
    CudaPasses& passes_;
};

std::unique_ptr<ValueSource> CudaPasses::make_momentum_source(FactorOf factor) {
    source_ = Source::kMomenta;
    factor_of_ = std::move(factor);
    return std::make_unique<EncodedSource>(*this);
}

bool CudaPasses::encoder_looks() const {
    const bool momentum_is_the_message = source_ == Source::kMomenta && bucket_.m.size() == 0;
    const bool before_the_freeze = source_ == Source::kRounds && bucket_.anchor.size() == 0;
    return momentum_is_the_message || before_the_freeze;
}

void CudaPasses::prepare_source() {
    (void)factors(factor_of_);
    encoded_ = nullptr;
    if (encoder_looks()) return;
    source_ == Source::kMomenta ? prepare_momenta() : prepare_round();
}

/// After the last block of a look, asks for the look's result.
Status CudaPasses::encode_gradients(const cuda::Rows<cuda::BlendEncoding>& slices) {
    cuda::EncodeGradientsArguments arguments = {
        .slices = {},
        .pieces = pieces(),
        .factors = factors_there_.data(),
        .first = blocks_to_look_ > 0 ? nonfinite_.place() : nullptr,
        .limit = limit_,
        .precondition = weights(),
    };
    std::size_t blocks = 0;
    for (std::size_t row = 0; row < slices.count(); ++row) {
        const auto& [to, last] = slices[row];
        const std::size_t first_block = bucket_.layout.number_of({to.slice.chunk, 0});
        arguments.slices.add(
            {to, source_ == Source::kMomenta ? last : nullptr, first_piece_there_.data() + first_block});
        blocks += to.slice.blocks();
    }
    ONEBIT_RETURN_IF_ERROR(cuda::encode_gradients(arguments, stream_));
    if (blocks == 0 || blocks_to_look_ == 0) return {};
    blocks_to_look_ -= blocks;
    return blocks_to_look_ == 0 ? nonfinite_.ask(stream_) : Status();
}

/// Momenta whose past lies in m.
void CudaPasses::prepare_momenta() {
    float* const m = bucket_.sum.data();
    note(cuda::copy_later(m, bucket_.m.data(), bucket_.m.bytes(), stream_));
    note(cuda::momentum({pieces(), nullptr, factors_there_.data(), m, weights()}, stream_));
    encoded_ = m;
}

void CudaPasses::make_room_for_momenta() {
    if (bucket_.sum.size() == 0) bucket_.sum = AlignedBuffer<float>(bucket_.layout.count(), memory_);
}

// ----------------------------------------------------------------------------------------------------- LAMB's ----

/// put(segment, its number), once the device's numbers are on the host.
template <typename Put>
void CudaPasses::take_numbers(const Put& put) {
    memory_.copy(numbers_.data(), numbers_there_.data(), numbers_there_.bytes());
    for (std::size_t i = 0; i < numbers_.size(); ++i) put(i, numbers_[i]);
}

/// The direction takes the sum's place: descend needs it once more.
void CudaPasses::find_direction(float factor, std::span<Findings> findings) {
    float* const u = bucket_.sum.data();
    note(factor_there_.update(std::span(&factor, 1), stream_));
    note(cuda::moments({pieces(), u, factor_there_.data(), bucket_.m.data(), bucket_.v.data()}, stream_));
    note(cuda::direction({pieces(), bucket_.m.data(), bucket_.v.data(), u}, stream_));
    note(cuda::sum_squares({pieces(), u, numbers_there_.data()}, stream_));
    take_numbers([&](std::size_t i, double squares) { findings[i].u = squares; });
    note(cuda::sum_squares({pieces(), nullptr, numbers_there_.data()}, stream_));
    take_numbers([&](std::size_t i, double squares) { findings[i].x = squares; });
}

void CudaPasses::descend(const FactorOf& step) {
    note(cuda::descend({pieces(), bucket_.sum.data(), steps(step)}, stream_));
}

void CudaPasses::find_magnitudes(std::span<Findings> findings) {
    note(cuda::sum_squares({pieces(), bucket_.m.data(), numbers_there_.data()}, stream_));
    take_numbers([&](std::size_t i, double squares) { findings[i].x = squares; });
}

void CudaPasses::begin_messages(const FactorOf& scale) {
    note(cuda::copy_later(bucket_.v_fresh.data(), bucket_.v.data(), bucket_.v.bytes(), stream_));
    note(cuda::multiply({pieces(), bucket_.m.data(), factors(scale), bucket_.m.data()}, stream_));
}

void CudaPasses::look_at_messages(const FactorOf& unscale, std::span<Findings> findings) {
    float* const m = bucket_.sum.data();
    float* const m_before = m_before_.data();
    float* const work = work_.data();
    messages().last_result(ArraySink(m));
    if (bucket_.m.size() > 0) {
        note(cuda::copy_later(m_before, bucket_.m.data(), bucket_.m.bytes(), stream_));
    } else {
        messages().previous_result(ArraySink(m_before));
    }
    const float* const factor = factors(unscale);
    note(cuda::multiply({pieces(), m, factor, m}, stream_));
    note(cuda::multiply({pieces(), m_before, factor, m_before}, stream_));
    note(cuda::refresh({pieces(), m, m_before, bucket_.precondition.data(), bucket_.v_fresh.data(), work}, stream_));
    note(cuda::least({pieces(), work, numbers_there_.data()}, stream_));
    take_numbers([&](std::size_t i, double least) { findings[i].least_ratio = static_cast<float>(least); });
    for (const bool with_decay : {false, true}) {
        note(cuda::frozen_direction({pieces(), m, bucket_.precondition.data(), work, with_decay}, stream_));
        note(cuda::sum_squares({pieces(), work, numbers_there_.data()}, stream_));
        take_numbers([&](std::size_t i, double squares) { (with_decay ? findings[i].u : findings[i].u0) = squares; });
    }
}

void CudaPasses::update_from_message(const FactorOf& unscale, const FactorOf& step) {
    if (!unscale) bucket_.sum = {}; // as above
    note(cuda::compressed_update(
        {pieces(), last_messages(), precondition_of_messages(), unscale ? factors(unscale) : nullptr, steps(step)},
        stream_));
}

// ----------------------------------------------------------------------------------------------- 0/1 Adam's ----

std::unique_ptr<ValueSource> CudaPasses::make_round_source(FactorOf factor) {
    source_ = Source::kRounds;
    factor_of_ = std::move(factor);
    return std::make_unique<EncodedSource>(*this);
}

/// The changes of the parameters by this rank's steps, including the present step.
void CudaPasses::prepare_round() {
    float* const drift = bucket_.sum.data();
    note(cuda::step_alone({pieces(), factors_there_.data(), bucket_.precondition.data(), bucket_.m.data(),
                           bucket_.anchor.data(), drift, !settings_.exchange_updates},
                          stream_));
    encoded_ = drift;
}

void CudaPasses::take_average() {
    note(cuda::take_average({pieces(), last_messages(), bucket_.m.data(), bucket_.v.data(), settings_.exchange_updates},
                            stream_));
}

void CudaPasses::step_alone(const FactorOf& factor) {
    note(cuda::step_alone({pieces(), factors(factor), bucket_.precondition.data(), bucket_.m.data(), nullptr, nullptr,
                           !settings_.exchange_updates},
                          stream_));
}

void CudaPasses::move_momenta(const FactorOf& factor) {
    note(cuda::momentum({pieces(), nullptr, factors(factor), bucket_.m.data(), weights()}, stream_));
}

void CudaPasses::rejoin(const FactorOf& to_momentum, const FactorOf& decay) {
    note(cuda::rejoin({pieces(), last_messages(), precondition_of_messages(), factors(to_momentum), steps(decay),
                       bucket_.m.data(), bucket_.anchor.data()},
                      stream_));
}

// ------------------------------------------------------------------------------------------------ done rarely ----

void CudaPasses::read(const AlignedBuffer<float>& fused, const Reader& body) const {
    for (std::size_t first = 0; first < fused.size(); first += window_.size()) {
        const std::size_t count = std::min(window_.size(), fused.size() - first);
        memory_.copy(window_.data(), fused.data() + first, count * sizeof(float));
        body(first, {window_.data(), count});
    }
}

void CudaPasses::edit(AlignedBuffer<float>& fused, const Editor& body) {
    for (std::size_t first = 0; first < fused.size(); first += window_.size()) {
        const std::size_t count = std::min(window_.size(), fused.size() - first);
        memory_.copy(window_.data(), fused.data() + first, count * sizeof(float));
        body(first, {window_.data(), count});
        memory_.copy(fused.data() + first, window_.data(), count * sizeof(float));
    }
}

void CudaPasses::copy_last_result(const Chunk& chunk, float* values) const {
    AlignedBuffer<float> window(window_.size(), memory_);
    SliceCursor cursor(ceil_divide(window.size(), kBlockElements));
    for (Slice slice; cursor.next({chunk}, &slice);) {
        messages().last_result(slice, ArraySink(window.data() - slice.begin()));
        memory_.copy(values + (slice.begin() - chunk.begin), window.data(), slice.count() * sizeof(float));
    }
}

void CudaPasses::set_parameters(const float* fused) {
    for (std::size_t i = 0; i < bucket_.layout.tensors().size(); ++i) {
        const Segment tensor = bucket_.layout.whole_tensor(i);
        memory_.copy(tensor.parameters(), fused + tensor.offset, tensor.count * sizeof(float));
    }
    note(follow_addresses());
    note(cuda::narrow({pieces()}, stream_));
}

void CudaPasses::copy_parameters(AlignedBuffer<float>& fused) const {
    for (std::size_t i = 0; i < bucket_.layout.tensors().size(); ++i) {
        const Segment tensor = bucket_.layout.whole_tensor(i);
        memory_.copy(fused.data() + tensor.offset, tensor.parameters(), tensor.count * sizeof(float));
    }
}

Status CudaPasses::failure() const {
    return failure_.ok() ? bucket_.allreduce->codec().failure() : failure_;
}

void CudaPasses::note(const Status& status) {
    if (failure_.ok()) failure_ = status;
}

std::size_t CudaPasses::bytes() const {
    return pieces_.bytes() + pieces_there_.bytes() + zeros_.bytes() + window_.bytes() +
           groups_.size() * sizeof(cuda::GroupSettings) + factors_.size() * sizeof(float) + numbers_there_.bytes() +
           sketches_.bytes() + m_before_.bytes() + work_.bytes() + first_piece_there_.bytes() + runs_there_.bytes() +
           sketches_of_runs_.bytes();
}

std::unique_ptr<Passes> make_cuda_passes(Bucket& bucket, const PassSettings& settings, Memory& memory, void* stream,
                                         const CudaNeeds& needs) {
    return std::make_unique<CudaPasses>(bucket, settings, memory, static_cast<cuda::Stream>(stream), needs);
}

} // namespace onebit
