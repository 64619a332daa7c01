package algorithm

// Mark says until when takes from a bucket may yet be undone, since they are part of a request that another bucket may deny. Until then a
// denial is not the last word: what the bucket lacks may come back at any moment. The zero Mark stands for no such takes.
//
// It is counted in steps of 65,536 microseconds of the bucket's clock, so that a store can keep it in four bits beside the time of the last
// change, and end at the end of a step however often it is written anew.
type Mark int64

const (
	markStep  = 1 << 16 // microseconds
	markSteps = 15      // so that a mark stands for a second less 17 to 82 ms
)

// NewMark is the mark of a take at now, by the bucket's clock. It stands for at least 917,504 microseconds and for 983,040 at most.
func NewMark(now int64) Mark { return MarkAfter(markSteps, now) }

// MarkAfter is the mark that ends so many steps after the beginning of the step that now is in. It is zero for no steps.
func MarkAfter(steps, now int64) Mark {
	if steps <= 0 {
		return 0
	}
	return Mark(now/markStep + steps)
}

// Steps is how many steps the mark ends after the beginning of the step that now is in: 0 when it has passed, else 1 to 15.
func (m Mark) Steps(now int64) int64 { return max(0, int64(m)-now/markStep) }

// Left is how many microseconds after now the mark ends. Zero when it has passed.
func (m Mark) Left(now int64) int64 { return max(0, int64(m)*markStep-now) }
