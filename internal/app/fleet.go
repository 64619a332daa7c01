package app

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"os"
	"slices"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/pkg/blocklist"
)

// firstPoll is how long the start waits for what is blocked.
const firstPoll = 500 * time.Millisecond

// self is what this instance says of itself.
func (a *App) self() admin.Instance {
	source := a.source.Status()
	i := admin.Instance{
		ID: a.id, Version: a.opts.Version, Commit: a.opts.Commit, StartedAt: a.started.UTC().Truncate(time.Second), Ready: a.notReady() == "",
		Policies: source.Version, Number: source.Number, Failing: source.Err != nil, Blocks: a.blocks.Len(),
	}
	if a.serving.Load() { // the listeners are there
		i.Address, i.Admin = reachable(a.grpcAddr), reachable(a.adminAddr)
	}
	return i
}

// reachable is an address with this host's name where it says any of its addresses.
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return net.JoinHostPort(host, port)
}

func (a *App) record() []byte {
	b, _ := json.Marshal(a.self()) // has nothing that cannot be
	return b
}

// instances are this one and, if there is a board, all others.
func (a *App) instances(ctx context.Context) admin.InstanceList {
	self := a.self()
	self.This = true
	list := admin.InstanceList{Scope: "this instance", Instances: []admin.Instance{self}}
	if a.board == nil {
		return list
	}
	ids, err := a.shared.Members(ctx)
	var records map[string]string
	if err == nil {
		records, err = a.board.Records(ctx, ids)
	}
	if err != nil {
		list.Error = err.Error()
		return list
	}
	list.Scope = "all instances"
	for _, id := range ids {
		if id == a.id {
			continue
		}
		other, ok := readRecord(id, records[id])
		if !ok {
			list.Silent++
			continue
		}
		list.Instances = append(list.Instances, other)
	}
	slices.SortFunc(list.Instances, func(x, y admin.Instance) int {
		return cmp.Or(x.StartedAt.Compare(y.StartedAt), cmp.Compare(x.ID, y.ID))
	})
	return list
}

// readRecord reads what stands in Redis, which anybody may have written.
func readRecord(id, record string) (i admin.Instance, ok bool) {
	const most = 256
	if json.Unmarshal([]byte(record), &i) != nil {
		return i, false
	}
	i.ID, i.This = blocklist.Clean(id, most), false
	for _, s := range []*string{&i.Address, &i.Admin, &i.Version, &i.Commit, &i.Policies} {
		*s = blocklist.Clean(*s, most)
	}
	return i, true
}
