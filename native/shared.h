// The table entries that are one template for every instruction set. Include it inside an anonymous
// namespace, after a vec_*.h, elementwise.h and rows.h.

template <class V>
void fill_shared(KernelTable& t) {
  t.activate = Elementwise<V>::activate;
}
