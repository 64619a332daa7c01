package redistest

import (
	"context"
	"errors"
	"fmt"
)

// Migration is a slot on its way from one primary to another. Until it ends, the old one answers ASK for keys that it does not have, and
// TRYAGAIN to commands whose keys are only in part there.
type Migration struct {
	Slot     int
	From, To *Server
	c        *Cluster
}

// MigrateSlot begins to move a slot to another primary. No key moves yet. [Migration.Finish] or [Migration.Abort] ends it.
func (c *Cluster) MigrateSlot(ctx context.Context, slot int, to *Server) (*Migration, error) {
	from, err := c.Owner(ctx, slot)
	if err != nil {
		return nil, err
	}
	if from == to {
		return nil, fmt.Errorf("slot %d is at %s already", slot, to.Addr())
	}
	if _, err := to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.ID); err != nil {
		return nil, err
	}
	if _, err := from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.ID); err != nil {
		return nil, err
	}
	return &Migration{Slot: slot, From: from, To: to, c: c}, nil
}

// Move moves keys of the slot, with what they hold. Keys that do not exist are left out.
func (m *Migration) Move(ctx context.Context, keys ...string) error {
	const timeout = 5000 // ms
	args := []any{"MIGRATE", m.To.Host, m.To.Port, "", 0, timeout, "REPLACE"}
	if m.c.o.Password != "" {
		args = append(args, "AUTH", m.c.o.Password)
	}
	args = append(args, "KEYS")
	for _, key := range keys {
		args = append(args, key)
	}
	_, err := m.From.Do(ctx, args...)
	return err
}

// MoveAll moves every key that the slot has.
func (m *Migration) MoveAll(ctx context.Context) error {
	for {
		reply, err := m.From.Do(ctx, "CLUSTER", "GETKEYSINSLOT", m.Slot, 100)
		if err != nil {
			return err
		}
		keys := make([]string, 0, 100)
		for _, key := range reply.([]any) {
			keys = append(keys, key.(string))
		}
		if len(keys) == 0 {
			return nil
		}
		if err := m.Move(ctx, keys...); err != nil {
			return err
		}
	}
}

// Finish moves what is left, and gives the slot to its new node. It returns when every running node knows.
func (m *Migration) Finish(ctx context.Context) error {
	if err := m.MoveAll(ctx); err != nil {
		return err
	}
	// The new owner first: between the two, nobody is without an owner for the slot.
	for _, node := range []*Server{m.To, m.From} {
		if _, err := node.Do(ctx, "CLUSTER", "SETSLOT", m.Slot, "NODE", m.To.ID); err != nil {
			return err
		}
	}
	return m.c.each(func(_ int, node *Server) error {
		if !node.Running() {
			return nil
		}
		return poll(ctx, fmt.Sprintf("%s to know where slot %d is", node.Addr(), m.Slot), func() error {
			view, err := node.view(ctx)
			if err == nil && !view[m.To.ID].serves(m.Slot) {
				return errors.New("it does not")
			}
			return err
		})
	})
}

// Abort leaves the slot where it was. Keys that were moved come back and replace what was made in their place meanwhile.
func (m *Migration) Abort(ctx context.Context) error {
	// The old node first: while its slot is open it refuses, by ASK, the keys that come back.
	if _, err := m.From.Do(ctx, "CLUSTER", "SETSLOT", m.Slot, "STABLE"); err != nil {
		return err
	}
	back := Migration{Slot: m.Slot, From: m.To, To: m.From, c: m.c}
	if err := back.MoveAll(ctx); err != nil {
		return err
	}
	_, err := m.To.Do(ctx, "CLUSTER", "SETSLOT", m.Slot, "STABLE")
	return err
}
