// A deliberate offender for the test of the check: an inline function with external linkage.
namespace ts {
inline int leaked(int x) {
  static int calls = 0;
  return x + ++calls;
}
int (*volatile address_of_leaked)(int) = leaked;
}  // namespace ts
