// Memory that comes while products run. Included per instruction-set namespace.

struct Range {
  const char *next, *end;
  int64_t lines() const { return (end - next + 63) / 64; }
};

// What a thread reads after its products, block by block: the keys and values of its rows. Each panel asks for a share of
// it, `lines_per_k` cache lines for every input, so that it has come when the products are done.
struct Later {
  std::vector<Range> ranges;
  size_t first = 0;
  double lines_per_k = 0.0;

  void clear() { ranges.clear(), first = 0, lines_per_k = 0.0; }
  // `k`: inputs of all panels this thread multiplies before it reads the ranges.
  void spread(int64_t k) {
    int64_t lines = 0;
    for (const Range& range : ranges) lines += range.lines();
    lines_per_k = double(lines) / double(k > 0 ? k : 1);
  }
  Range take(int64_t lines) {  // up to that many, of one range
    if (first == ranges.size()) return {nullptr, nullptr};
    Range& range = ranges[first];
    const Range some{range.next, std::min(range.end, range.next + lines * 64)};
    range.next = some.end;
    first += range.next >= range.end;
    return some;
  }
};

// Memory comes while products run: each pass over a panel asks for its share of the next panel, then of what `later` says,
// LINES cache lines for every pair of k, so that neither waits for the other.
struct Ahead {
  Range now{nullptr, nullptr};
  Later* later = nullptr;
  int64_t later_lines = 0;

  int64_t lines() const { return now.lines() + later_lines; }
  void turn() {  // `now` is used up
    now = later_lines > 0 ? later->take(later_lines) : Range{nullptr, nullptr};
    later_lines = now.next == nullptr ? 0 : later_lines - now.lines();
  }
};
