package policy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Files without a fault. What is added to them is in line 8.
const (
	bucketFile = "policies:\n  - id: a\n    key: [ip]\n    algorithm: token-bucket\n    capacity: 20\n    refillPerMinute: 100\n    onStoreFailure: local\n"
	logFile    = "policies:\n  - id: a\n    key: [ip]\n    algorithm: sliding-log\n    limit: 20\n    window: 60s\n    onStoreFailure: local\n"
)

// with replaces a field of bucketFile or logFile, or adds one.
func with(text, field string) string {
	name, _, _ := strings.Cut(field, ":")
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line[min(4, len(line)):], name+":") {
			lines[i] = line[:4] + field + "\n"
			return strings.Join(lines, "")
		}
	}
	return text + "    " + field + "\n"
}

func without(text string, names ...string) string {
	for _, name := range names {
		before, rest, _ := strings.Cut(text, "    "+name+":")
		_, after, _ := strings.Cut(rest, "\n")
		text = before + after
	}
	return text
}

// faultCase is a file with one fault. schema says that an editor sees it too.
type faultCase struct {
	name, text   string
	line, column int
	message      string // a part of it
	hint         string // all of it
	schema       bool
}

const unitsHint = "units are ms, s, m, h and d, as in 500ms, 60s, 1h30m, 720h or 30d"

func numberFaults() []faultCase {
	capacity := func(name, value, message, hint string, schema bool) faultCase {
		return faultCase{name, with(bucketFile, "capacity: "+value), 5, 15, "capacity " + message, hint, schema}
	}
	refill := func(name, value, message, hint string, schema bool) faultCase {
		return faultCase{name, with(bucketFile, "refillPerMinute: "+value), 6, 22, "refillPerMinute" + message, hint, schema}
	}
	window := func(name, value, message, hint string, schema bool) faultCase {
		return faultCase{name, with(logFile, "window: "+value), 6, 13, message, hint, schema}
	}
	const plain = "must be a number in plain decimal digits"
	return []faultCase{
		capacity("negative", "-1", "must not be negative", "", true),
		capacity("fraction", "1.5", "must be a whole number", "", true),
		capacity("text", `"100"`, "must be a number, not text", "write 100 without quotes", true),
		capacity("word", "many", plain, "", true),
		capacity("hexadecimal", "0x10", plain, "write 16", false),
		capacity("octal", "0o10", plain, "", false),
		capacity("leading zero", "010", plain, "", false),
		capacity("underscore", "1_000", plain, "write 1000", false),
		capacity("exponent", "1e3", plain, "write 1000", false),
		capacity("thousands", "1k", plain, "write 1000", true),
		capacity("millions", "1.5M", plain, "write 1500000", true),
		capacity("part of one", "0.0005k", plain, "", true),
		capacity("commas", `1,000`, plain, "write 1000", true),
		capacity("a comma for the point", `1,5`, plain, "", true),
		refill("thousands in decimals", "2.5k", " "+plain, "write 2500", true),
		capacity("plus", "+5", plain, "write 5", false),
		capacity("infinity", ".inf", "must be a finite number", "", false),
		capacity("not a number", ".nan", "must be a finite number", "", false),
		capacity("16 digits", "1000000000000000", "has more than 15 digits", "the largest is 999999999999999", true),
		capacity("20 digits", "99999999999999999999", "has more than 15 digits", "the largest is 999999999999999", true),
		capacity("list", "[1]", "is a number, not a list", "", true),
		{"nothing", with(bucketFile, "capacity:"), 5, 14, "capacity is a number, not nothing", "", true},
		refill("no refill", "0", " must be more than 0", "to deny every call write capacity: 0", true),
		refill("tiny refill", "0.000000000000000", " must be more than 0", "to deny every call write capacity: 0", true),
		refill("negative refill", "-0.5", " must not be negative", "", true),
		refill("infinite refill", "-.Inf", " must not be negative", "", false),
		refill("no leading digit", ".5", " "+plain, "write 0.5", false),
		refill("long fraction", "0.0000000000000001", " has more than 15 digits", "the largest is 999999999999999", false),
		refill("ten years", "0.000001", ": at this refill an empty bucket needs more than ten years", "raise the refill or lower the capacity", false),
		window("month", "1mo", `window "1mo" has the unknown unit "mo"`, unitsHint, true),
		window("year", "1y", `window "1y" has the unknown unit "y"`, unitsHint, true),
		window("nanoseconds", "100ns", `window "100ns" has the unknown unit "ns"`, unitsHint, true),
		window("no unit", "60", `window "60" has no unit`, unitsHint, true),
		window("no number", "s", `window "s" is not a time`, unitsHint, true),
		window("words", "1 hour", `window "1 hour" has no unit`, "write 1h", true),
		window("minutes", "5 minutes", `window "5 minutes" has no unit`, "write 5m", true),
		window("two words", `"1 hour, 30 mins"`, `window "1 hour, 30 mins" has no unit`, "write 1h30m", true),
		window("and", "1 Day and 12 hrs", `window "1 Day and 12 hrs" has no unit`, "write 1d12h", true),
		window("capitals", "60S", `window "60S" has the unknown unit "S"`, "write 60s", true),
		window("milliseconds", "250 MS", `window "250 MS" has no unit`, "write 250ms", true),
		window("minutes or months", "5M", `window "5M" has the unknown unit "M"`, unitsHint, true),
		window("months", "2 months", `window "2 months" has no unit`, unitsHint, true),
		window("empty", `""`, `window "" is empty`, unitsHint, true),
		window("zero", "0s", `window "0s" must be longer than nothing`, "", false),
		window("negative window", "-5s", `window "-5s" is not a time`, unitsHint, true),
		window("too long", "87601h", `window "87601h" is longer than ten years`, "the longest is 3650d", false),
		window("far too long", "99999999999999999999d", "is longer than ten years", "the longest is 3650d", false),
		window("sum too long", "3650d1ms", "is longer than ten years", "the longest is 3650d", false),
		window("too fine", "0.0001ms", `window "0.0001ms" is not a whole number of microseconds`, "", false),
		{"negative limit", with(logFile, "limit: -1"), 5, 12, "limit must not be negative", "", true},
		{"ipv6Prefix", "ipv6Prefix: 129\npolicies: []\n", 1, 13, "ipv6Prefix must be from 1 to 128", "", true},
	}
}

func fieldFaults() []faultCase {
	onBucket := func(name, field string, column int, message, hint string, schema bool) faultCase {
		text := with(bucketFile, field)
		line := strings.Count(text[:strings.Index(text, field)], "\n") + 1
		return faultCase{name, text, line, column, message, hint, schema}
	}
	const bucketHint = "a token-bucket has capacity and refillPerSecond, refillPerMinute, refillPerHour or refillPerDay"
	return []faultCase{
		onBucket("unknown field", "hashtag: tenant", 5, `a policy has no field "hashtag"`, `did you mean "hashTag"?`, true),
		onBucket("wrong case", "onStoreFailure: Local", 21, `onStoreFailure cannot be "Local"`, `did you mean "local"?`, true),
		onBucket("no such mode", "onStoreFailure: panic", 21, `onStoreFailure cannot be "panic"`, "", true),
		onBucket("expose", "expose: onreject", 13, `expose cannot be "onreject"`, `did you mean "onReject"?`, true),
		onBucket("advertise", "advertise: sustain", 16, `advertise cannot be "sustain"`, `did you mean "sustained"?`, true),
		onBucket("mode", "mode: shadwo", 11, `mode cannot be "shadwo"`, `did you mean "shadow"?`, true),
		onBucket("charge", "charge: post-paid", 13, `charge cannot be "post-paid"`, `did you mean "postpaid"?`, true),
		{"charge of an overdraft", with(with(bucketFile, "charge: postpayed"), "overdraft: 5"), 8, 13, `charge cannot be "postpayed"`, `did you mean "postpaid"?`, true},
		{"slow override", bucketFile + "    overrides:\n      - {match: {ip: 1.1.1.1}, refillPerDay: 0.001, comment: a}\n", 9, 46, "refillPerDay: at this refill", "raise the refill or lower the capacity", false},
		{"large override", bucketFile + "    overrides:\n      - {match: {ip: 1.1.1.1}, capacity: 999999999999999, comment: a}\n", 9, 42, "capacity: at this refill", "raise the refill or lower the capacity", false},
		{"deep overdraft", with(with(bucketFile, "charge: postpaid"), "refillPerMinute: 0.000005"), 6, 22, "refillPerMinute: at this refill", "raise the refill or lower the capacity", false},
		{"override without match", bucketFile + "    overrides:\n      - {capacity: 5, comment: a}\n", 9, 9, "an override needs match", "say which requests the override is for", true},
		{"override matching all", bucketFile + "    overrides:\n      - {match: {}, capacity: 5, comment: a}\n", 9, 17, "the match of an override names at least one attribute", "", true},
		{"override of one bucket", with(bucketFile, "key: []") + "    overrides:\n      - {match: {ip: a}, capacity: 5, comment: a}\n", 9, 18, "an override cannot depend on ip", "this policy counts all requests in one bucket", false},
		{"override of a log", bucketFile + "    overrides:\n      - {match: {ip: a}, limit: 5, comment: a}\n", 9, 26, "limit does not go with a token-bucket", bucketHint, false},
		{"until", bucketFile + "    overrides:\n      - {match: {ip: a}, capacity: 5, comment: a, until: 2030-02-30}\n", 9, 58, `until is a date or a time, not "2030-02-30"`, "write 2030-01-31 or 2030-01-31T18:00:00Z", false},
		onBucket("boolean", "normalize: true", 16, `normalize cannot be "true"`, "", true),
		onBucket("algorithm", "algorithm: tokenbucket", 16, `algorithm cannot be "tokenbucket"`, `did you mean "token-bucket"?`, true),
		onBucket("sliding window", "algorithm: sliding-window", 16, `algorithm cannot be "sliding-window"`, `did you mean "sliding-log"?`, true),
		onBucket("fixed window", "algorithm: fixed_window", 16, `algorithm cannot be "fixed_window"`, `did you mean "sliding-log"?`, true),
		onBucket("leaky bucket", "algorithm: leaky-bucket", 16, `algorithm cannot be "leaky-bucket"`, `did you mean "token-bucket"?`, true),
		onBucket("another word for open", "onStoreFailure: allow", 21, `onStoreFailure cannot be "allow": it is local, open or closed`, `did you mean "open"?`, true),
		onBucket("another word for closed", "onStoreFailure: deny", 21, `onStoreFailure cannot be "deny"`, `did you mean "closed"?`, true),
		onBucket("limit on a bucket", "limit: 5", 5, "limit does not go with a token-bucket", bucketHint, true),
		onBucket("two refills", "refillPerHour: 5", 5, "refillPerHour is written as well as refillPerMinute", "write one of the two", true),
		onBucket("overdraft", "overdraft: 5", 5, "overdraft goes with charge: postpaid only", "write charge: postpaid or leave overdraft out", true),
		onBucket("hash tag", "hashTag: tenant", 5, "hashTag tenant is not in key", "write onMissingKey: deny or skip", false),
		onBucket("key as text", "key: ip", 10, "key is a list, not a single value", "write key: [ip]; for one bucket that all requests share, key: []", true),
		onBucket("key twice", "key: [ip, ip]", 15, "key has ip twice", "", true),
		onBucket("key of mappings", "key: [{ip: x}]", 11, "key lists names of attributes, not a mapping", "", true),
		onBucket("long key", "key: [a, b, c, d, e, f, g, h, i]", 10, "key has 9 attributes, more than 8", "", true),
		onBucket("attribute name", "key: [api key]", 11, `"api key" cannot be the name of an attribute`, "use letters, digits, _ . and -", true),
		onBucket("id", `id: "caf\u00e9"`, 9, "id cannot hold the character 'é'", "use printable ASCII characters", true),
		onBucket("line feed", `name: "a\nb"`, 11, `name cannot hold the character '\n'`, "use printable ASCII characters", true),
		onBucket("long id", "id: "+strings.Repeat("x", 65), 9, "id has 1 to 64 characters, not 65", "", true),
		onBucket("empty id", `id: ""`, 9, "id has 1 to 64 characters, not 0", "", true),
		onBucket("no match value", "match: {plan: }", 18, "plan cannot be matched with nothing", matchHint, true),
		onBucket("empty list", "match: {plan: []}", 19, "plan: no value is in an empty list", matchHint, true),
		onBucket("prefixes", `match: {plan: [a*, b]}`, 20, `a list holds whole values: a star would make no prefix here`, "write a policy for each prefix", true),
		onBucket("inner star", `match: {plan: "a*b"}`, 19, "a star stands only at the end of a value", `to take a value literally write a list of one: plan: ["…"]`, true),
		onBucket("match of lists", "match: {plan: [[a]]}", 20, "a list holds values to compare with, not a list", "", true),
		onBucket("match as text", "match: free", 12, "match is written as name: value, not as a single value", "", true),
		onBucket("overrides as mapping", "overrides: {}", 16, "overrides is a list, not a mapping", "write overrides:\n  - {match: …, capacity: …, comment: …}", true),
		onBucket("reconcile", "reconcile: no", 16, `reconcile cannot be "no"`, "", true),
		{"reconcile of an open policy", with(with(bucketFile, "onStoreFailure: open"), "reconcile: false"), 8, 5, "reconcile goes with onStoreFailure: local only", "leave it out, or write onStoreFailure: local", true},
		{"missing mode", without(bucketFile, "onStoreFailure"), 2, 5, `policy "a" needs onStoreFailure`, "write onStoreFailure: local, open or closed", true},
		{"missing algorithm", without(bucketFile, "algorithm", "capacity", "refillPerMinute"), 2, 5, `policy "a" needs algorithm`, "write algorithm: token-bucket or sliding-log", true},
		{"missing key", without(bucketFile, "key"), 2, 5, `policy "a" needs key`, "write key: [] for one bucket that all requests share", true},
		{"missing capacity", without(bucketFile, "capacity"), 2, 5, `policy "a" needs capacity`, bucketHint, true},
		{"missing refill", without(bucketFile, "refillPerMinute"), 2, 5, `policy "a" needs a refill`, bucketHint, true},
		{"missing window", without(logFile, "window"), 2, 5, `policy "a" needs window`, "a sliding-log has limit and window", true},
		{"capacity on a log", with(logFile, "capacity: 5"), 8, 5, "capacity does not go with a sliding-log", "a sliding-log has limit and window", true},
		{"advertise on a log", with(logFile, "advertise: burst"), 8, 5, "advertise does not go with a sliding-log", "a sliding-log has limit and window", true},
		{"postpaid log", with(logFile, "charge: postpaid"), 8, 5, "charge: postpaid does not go with a sliding-log", "", true},
		{"no policies", "domain: edge\n", 1, 1, "a policy file needs policies", "write policies: [] if there are none", true},
		{"null policies", "policies:\n", 1, 10, "policies is a list, not nothing", "write policies: [] if there are none", true},
		{"empty policy", "policies:\n  - \n", 2, 5, "a policy is written as name: value, not as nothing", "", true},
		{"list at the root", "- policies\n", 1, 1, "a policy file is written as name: value, not as a list", "", true},
		{"empty domain", "domain: \"\"\npolicies: []\n", 1, 9, "domain is empty", "leave domain out to serve every domain", true},
		{"field far off", "xyzzyxyzzy: 1\npolicies: []\n", 1, 1, `a policy file has no field "xyzzyxyzzy"`, "the fields are domain, attributes, ipv6Prefix, policies", true},
		{"template braces", "attributes:\n  who: \"{a\"\npolicies: []\n", 2, 8, "the braces of a template must come in pairs", `as in "{method} {path}"`, false},
		{"template name", "attributes:\n  who: \"{}\"\npolicies: []\n", 2, 8, "the name of an attribute has 1 to 64 characters, not 0", "", false},
		{"template of itself", "attributes:\n  who: \"{who}\"\npolicies: []\n", 2, 8, `attribute "who" is composed from itself`, "", false},
		{"rename to nothing", "attributes:\n  who: \"\"\npolicies: []\n", 2, 8, "the name of an attribute has 1 to 64 characters, not 0", "", true},
	}
}

const matchHint = `write a value, a list of values, "*" for any value, a prefix such as "GET /v1/*", or absent`

func TestSingleFaults(t *testing.T) {
	s := compileSchema(t)
	for _, tt := range append(numberFaults(), fieldFaults()...) {
		t.Run(tt.name, func(t *testing.T) {
			_, err := policy.Parse("a.yaml", []byte(tt.text))
			var faults policy.Faults
			require.ErrorAs(t, err, &faults, tt.text)
			require.Len(t, faults, 1, "%v", err)
			require.Equal(t, policy.Position{File: "a.yaml", Line: tt.line, Column: tt.column}, faults[0].Pos, "%v", err)
			require.Contains(t, faults[0].Message, tt.message)
			require.Equal(t, tt.hint, faults[0].Hint)
			if tt.schema {
				require.Error(t, validate(t, s, []byte(tt.text)), "the schema accepts\n%s", tt.text)
			}
		})
	}
}
