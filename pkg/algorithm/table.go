package algorithm

// row is what the rest of the program needs to know about an algorithm. A new algorithm is two files and a row here.
type row struct {
	kind Kind
	name string // as written in a policy file; without the hyphen, the name of its files
}

// table has the algorithms in the order in which they are offered to people.
var table = [...]row{
	{kind: TokenBucket, name: "token-bucket"},
	{kind: SlidingLog, name: "sliding-log"},
}

// ByName finds the algorithm that a policy file calls name.
func ByName(name string) (Kind, bool) {
	for _, r := range table {
		if r.name == name {
			return r.kind, true
		}
	}
	return 0, false
}

// Names lists the algorithms as a policy file calls them.
func Names() []string {
	names := make([]string, len(table))
	for i, r := range table {
		names[i] = r.name
	}
	return names
}

// String gives the name by which a policy file calls the algorithm.
func (k Kind) String() string {
	for _, r := range table {
		if r.kind == k {
			return r.name
		}
	}
	return "invalid"
}
