package policy

import "strings"

// forms tell what the values of attributes look like, where a value of another look would never be met. An attribute that a file
// composes or renames by itself is not judged.
var forms = map[string]func(c Condition, value string) (message, hint string){
	"route": routeForm,
	"path":  pathForm,
}

// checkForm refuses values that no request can have, and those that would hold for more than they say.
func (b *builder) checkForm(n naming, c Condition) {
	form := forms[c.Attribute]
	if form == nil || n.ownForm[c.Attribute] {
		return
	}
	for _, v := range c.Values {
		if message, hint := form(c, v); message != "" {
			b.faultOnce(c.Pos, hint, "%s %q %s", c.Attribute, spelled(c, v), message)
			return
		}
	}
}

// spelled is a value as a file has it.
func spelled(c Condition, value string) string {
	if c.Kind == Prefix {
		return value + "*"
	}
	return value
}

// routeForm looks for a method in capitals, a space, and what pathForm looks for.
func routeForm(c Condition, value string) (message, hint string) {
	const wrong = `is not of the form "METHOD /path"`
	method, path, spaced := strings.Cut(value, " ")
	switch {
	case strings.HasPrefix(value, "/"):
		return wrong, `write "GET ` + spelled(c, value) + `", or match path for every method`
	case spaced && isMethod(method) && path == "" && c.Kind == Prefix:
		return wrong, `write "` + method + ` /*"`
	case spaced && !isMethod(method) && isMethod(strings.ToUpper(method)) && strings.HasPrefix(path, "/"):
		return wrong, `write "` + strings.ToUpper(method) + " " + spelled(c, path) + `"`
	case !spaced || !isMethod(method) || !strings.HasPrefix(path, "/"):
		return wrong, `write a method in capitals, a space and a path, as in "GET /v1/items"`
	}
	message, hint = pathForm(c, path)
	return message, strings.Replace(hint, `"`, `"`+method+" ", 1)
}

func isMethod(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}

// pathForm looks for a path as canonicalPath makes it. An exact value may be written in another way, since it is made canonical; a
// prefix cannot be, as it may end anywhere.
func pathForm(c Condition, value string) (message, hint string) {
	if i := strings.IndexAny(value, "?#"); i >= 0 {
		return "has a query string or fragment, which paths are compared without", `write "` + value[:i] + `"`
	}
	if !strings.HasPrefix(value, "/") {
		return "does not begin with a slash", `write "/` + spelled(c, value) + `"`
	}
	if c.Kind != Prefix {
		return "", ""
	}
	// Something follows the prefix in the values that begin with it: /v1/.w is no dot segment.
	const follows = "x"
	path := strings.TrimSuffix(string(appendCleanPath(nil, []byte(value+follows))), follows)
	if path != value {
		return "is not how paths are compared", `write "` + path + `*"`
	}
	return "", ""
}
