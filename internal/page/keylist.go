package page

import "github.com/envoy-rls/envoy-rls/internal/topkeys"

// keyList is one of a policy's lists, for the templates.
type keyList struct {
	Actions       bool
	Policy, Title string
	Items         []topkeys.Item
}

func newKeyList(s *Snapshot, policy, title string, items []topkeys.Item) keyList {
	return keyList{s.Actions, policy, title, items}
}

// act is a button by which a bucket is changed.
type act struct{ Action, Label, ID string }

// Short is enough of the id to tell the buttons of a list apart, for who hears them.
func (a act) Short() string { return a.ID[:min(6, len(a.ID))] }

func newAct(action, label, id string) act { return act{action, label, id} }
