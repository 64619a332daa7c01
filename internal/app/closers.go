package app

import (
	"context"
	"errors"
)

// closers end what was started, in the opposite order.
type closers []func(context.Context) error

func (c *closers) push(end func(context.Context) error) { *c = append(*c, end) }

// close ends everything, whatever fails or takes too long on the way, and leaves nothing to be closed again.
func (c *closers) close(ctx context.Context) error {
	var faults []error
	for i := len(*c) - 1; i >= 0; i-- {
		faults = append(faults, (*c)[i](ctx))
	}
	*c = nil
	return errors.Join(faults...)
}
