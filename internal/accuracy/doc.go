// Package accuracy proves from a record of decisions that a limit was kept, or that it was not.
//
// A [Recorder] notes of each decision when it was asked for and when the answer was there. Somewhere between the two the store
// decided; where, nobody outside of it knows. [Check] looks for what no choice of those moments can explain:
//
//   - over-admission: more was admitted in some interval than capacity + rate x its length, or than the limit in some window;
//   - a wrong denial: enough was there, whatever of all the calls that may have been charged was charged, and whenever;
//   - a split request: an admitted one of which a bucket denied, or a denied one of which none did;
//   - a wrong reading: a bucket says that it has more, or less, than it can have; so a charge for a request that was denied comes
//     out, and one that was lost;
//   - a broken promise: whoever waited as told, and was alone, was denied again.
//
// What instances decide by their shares while a store fails is judged by itself: together they keep the limit, and the store does.
//
// It raises no false alarm: what it reports is impossible for a store that keeps its limits, under [Options], which say how exact the clocks
// are, and the record's [Fault]s, which say what is known to have happened. What it does not report may still be wrong by about as much as
// was under way at once. All checks take O(n log n) time for n decisions: seconds for millions.
package accuracy
