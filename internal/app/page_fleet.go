package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/buckets"
	"github.com/envoy-rls/envoy-rls/internal/page"
)

const (
	// fleetAge is how old what the page shows of other instances may be before they are asked for again.
	fleetAge = 2 * time.Second
	// fleetPatience is how long that may take.
	fleetPatience = time.Second
	// shownChanges is how many changes by hand the page shows.
	shownChanges = 20
)

// fleetView is what the page shows of other instances. The page waits for nobody: it is given what is known, and they are asked for meanwhile.
type fleetView struct {
	wanted chan struct{}

	mu        sync.Mutex
	instances []page.Instance
}

func newFleetView() *fleetView { return &fleetView{wanted: make(chan struct{}, 1)} }

// get gives the instances that were known last.
func (f *fleetView) get() []page.Instance {
	select {
	case f.wanted <- struct{}{}:
	default: // they are being asked for
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.instances
}

// run asks for the instances when somebody wants to see them, until ctx ends.
func (f *fleetView) run(ctx context.Context, ask func(context.Context) []page.Instance) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wanted:
		}
		patient, cancel := context.WithTimeout(ctx, fleetPatience)
		found := ask(patient)
		cancel()
		f.mu.Lock()
		f.instances = found
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(fleetAge):
		}
	}
}

// shownInstances are all instances, for the page.
func (a *App) shownInstances(ctx context.Context) []page.Instance {
	list := []page.Instance{}
	for _, i := range a.instances(ctx).Instances {
		list = append(list, page.Instance{
			Name: i.Address, Self: i.This, Build: i.Version, Policies: i.Policies, Started: i.StartedAt, Ready: i.Ready, Failing: i.Failing,
		})
	}
	return list
}

// shownBlocks are the blocks that end first.
func (a *App) shownBlocks() []page.Block {
	list := []page.Block{}
	for _, b := range buckets.ListBlocks(a.blocks).Blocks {
		list = append(list, page.Block{Policy: b.Policy, ID: b.ID, Key: b.Key, Until: b.Until, Reason: b.Reason, Actor: b.Actor})
	}
	return list
}

// shownChanges are what was changed by hand through this instance.
func (a *App) shownChanges() []page.Change {
	list := []page.Change{}
	for _, e := range a.audit.Recent(shownChanges) {
		list = append(list, page.Change{At: e.At, Actor: e.Actor, Action: string(e.Action), Policy: e.Policy, Key: e.Key, Detail: detailOf(&e)})
	}
	return list
}

// detailOf says in a few words what a change did.
func detailOf(e *buckets.Entry) string {
	detail := e.Outcome
	if e.Before != nil && e.After != nil {
		detail += fmt.Sprintf(": %g left before, %g after", *e.Before, *e.After)
	}
	if e.Until != nil {
		detail += ", until " + e.Until.UTC().Format(time.RFC3339)
	}
	if e.Reason != "" {
		detail += "; " + e.Reason
	}
	return detail
}
