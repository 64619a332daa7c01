// Package timerslack spares a service most of what Go's runtime does while there is nothing to do.
//
// A thread of the runtime (sysmon) sleeps for 20 microseconds at a time as long as anything happens now and then, which at some hundred calls a second is
// always. That is ten thousand wake-ups a second: a twentieth of the CPU of a busy service, up to a quarter of that of a quiet one. Linux may let
// a thread sleep longer than it asked for, by its timer slack; a process can widen that for threads that are yet to come only. So it
// starts itself anew.
package timerslack

// Widen has Linux wake the process less often, which makes its timeouts act later by up to half a millisecond. It starts the program anew in the same
// process, with the same arguments, and returns in that one: call it first of all in main. It does nothing on other systems, where it is not
// allowed, and where somebody has set the slack already (such as systemd by TimerSlackNSec).
func Widen() { widen() }
