// Package policy turns policy files into an immutable [Set] and a request's attributes into the buckets that count it.
//
// A policy says which requests it is about (match), what it counts by (key), how (algorithm and numbers) and what
// happens when the store cannot answer (onStoreFailure). [Load] reads files strictly: every fault is reported with file,
// line, column and a caret, all faults at once. Only this package makes a [Key], and nobody parses one back.
package policy

import (
	"fmt"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

// FailureMode says how a policy's bucket is decided while its store cannot answer. There is no default.
type FailureMode uint8

// The failure modes.
const (
	// Local decides by this instance's share of the limit.
	Local FailureMode = iota + 1
	// Open admits.
	Open
	// Closed denies.
	Closed
)

// Expose says when a policy's numbers appear in an answer.
type Expose uint8

// When a policy is shown to clients.
const (
	ExposeAlways Expose = iota + 1 // the default
	ExposeOnReject
	ExposeNever
)

// Advertise says which quota a token bucket's RateLimit-Policy names.
type Advertise uint8

// What a token bucket advertises as its quota q and window w.
const (
	AdvertiseBurst     Advertise = iota + 1 // q = capacity, w = time to refill it; the default
	AdvertiseSustained                      // q = the refill per unit, w = the unit
)

// Mode says whether a policy's denials count.
type Mode uint8

// The modes of a policy.
const (
	Enforce Mode = iota + 1 // the default
	Shadow                  // decided and counted, but changes no answer
)

// Charge says when a policy's cost is known.
type Charge uint8

// When a policy is charged.
const (
	Prepaid  Charge = iota + 1 // before the request; the default
	Postpaid                   // a peek decides; a call with a cost is a report of usage
)

// MissingKey says what a policy does with a request that matches but lacks an attribute of its key or hash tag.
type MissingKey uint8

// What to do about a missing key attribute.
const (
	SkipPolicy  MissingKey = iota + 1 // the policy does not apply; the default unless OnStoreFailure is Closed
	DenyRequest                       // the request is denied
)

// Normalize says how free-text key values are made canonical before they become keys.
type Normalize uint8

// How free text becomes canonical.
const (
	NormalizeNone  Normalize = iota + 1 // bytes are taken as they are; the default
	NormalizeLower                      // surrounding white space trimmed, letters lower-cased
)

// Unit is the unit of time that a refill rate is written in.
type Unit time.Duration

// The units of refillPerSecond, refillPerMinute, refillPerHour and refillPerDay.
const (
	PerSecond = Unit(time.Second)
	PerMinute = Unit(time.Minute)
	PerHour   = Unit(time.Hour)
	PerDay    = Unit(24 * time.Hour)
)

// Position is a place in a policy file. Line and Column count from 1; the zero Position is unknown.
type Position struct {
	File         string
	Line, Column int
}

// String gives file:line:column.
func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// ConditionKind says how a Condition compares.
type ConditionKind uint8

// The kinds of conditions, as written in a policy's match.
const (
	AnyOf   ConditionKind = iota + 1 // a value, or a list of values
	Prefix                           // "GET /v1/*": the value starts with what stands before the star
	Present                          // "*": there is a value, whichever
	Absent                           // absent: there is no value
)

// Condition is one line of a match: an attribute and what its value must be.
type Condition struct {
	Attribute string
	Kind      ConditionKind
	Values    []string // AnyOf: the canonical values; Prefix: one prefix
	Pos       Position
}

// Numbers are what a bucket is decided by, with the form in which they were written.
type Numbers struct {
	algorithm.Limits
	// Refill tokens per Unit, as written; Limits.Rate is the same per microsecond. Zero for a sliding log.
	Refill float64
	Unit   Unit
	// Overdraft is how far below zero a postpaid report may charge a token bucket. A whole number.
	Overdraft float64
	// Index numbers all Numbers of a Set from 0, so that others can keep what they derive from one in a slice.
	Index int
}

// Override replaces a policy's numbers for requests whose attributes match. The first that matches wins.
type Override struct {
	Match   []Condition // on attributes of the policy's key or hash tag only
	Numbers Numbers
	Comment string
	Until   time.Time // zero: for ever. From this instant on the override no longer applies.
	Pos     Position
}

// Expired reports whether o no longer applies at now.
func (o *Override) Expired(now time.Time) bool { return !o.Until.IsZero() && !now.Before(o.Until) }

// Policy is one rule of a policy file. Everything in it is read-only once its Set exists.
//
// What a decision reads stands first, so that it is few lines of the processor's cache: of ten thousand policies, each is cold.
type Policy struct {
	Numbers Numbers

	ID string

	// Index numbers the policies of a Set from 0 in file order.
	Index int

	OnStoreFailure FailureMode
	// NoReconcile says that what was admitted locally, while the store failed, is not charged to it afterwards.
	NoReconcile  bool
	OnMissingKey MissingKey
	Expose       Expose
	Advertise    Advertise
	Mode         Mode
	Charge       Charge
	Normalize    Normalize

	compiled compiled

	// What follows decisions do not read, or few of them.

	rest   *rest
	Name   string // what clients see; the id where none is written
	Domain string // the domain of its file; empty: every domain
	Pos    Position

	Match     []Condition // all must hold
	Key       []string    // attributes that the policy counts by; empty: one bucket for all
	HashTag   string      // attribute whose value decides the slot, where it is not one of the key's own
	Overrides []Override

	keyPos []Position // where Key is written
	tagPos Position   // where HashTag is written

	_ [40]byte // in the block of a large Set each begins with a line of the cache
}

// File is one policy file, parsed and checked by itself.
type File struct {
	Path   string
	Domain string // empty: serves every domain
	// Attributes maps an entry key to the attribute that it gives, or an attribute to a template such as
	// "{method} {path}" that composes it from others.
	Attributes []AttributeRule
	// IPv6Prefix is how many leading bits of an IPv6 address make one client. 64 where none is written.
	IPv6Prefix int
	// IPv6PrefixPos is where ipv6Prefix is written; the zero Position: not written.
	IPv6PrefixPos Position
	Policies      []*Policy

	source []byte // what was parsed: quoted in faults, hashed for the Set's version
}

// AttributeRule is one line of a file's attributes table.
type AttributeRule struct {
	// Name is the entry key that is renamed, or the attribute that is composed.
	Name string
	// Attribute is what entries of key Name become. Empty for a composed attribute.
	Attribute string
	// Template composes attribute Name where no entry gives it. Empty for a renamed one.
	Template string
	Pos      Position
}
