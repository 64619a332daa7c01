package page

import "github.com/envoy-rls/envoy-rls/internal/topkeys"

// keyList is one of a policy's lists, for the templates.
type keyList struct {
	Policy, Title string
	Items         []topkeys.Item
}

func newKeyList(policy, title string, items []topkeys.Item) keyList {
	return keyList{policy, title, items}
}
