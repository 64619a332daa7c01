//go:build !unix

package childproc

import "errors"

// Pause is not possible here.
func (p *Process) Pause() error { return errors.ErrUnsupported }

// Resume is not possible here.
func (p *Process) Resume() error { return errors.ErrUnsupported }

// Quit is not possible here.
func (p *Process) Quit() error { return errors.ErrUnsupported }
