package main

import (
	"math/rand/v2"
	"time"
)

// pace spreads a worker's calls over time.
type pace struct {
	next  time.Time
	every time.Duration // 0: as soon as it can
}

// pace is one worker's share of the rate. Workers begin at different moments.
func (l load) pace(now time.Time) *pace {
	if l.rate <= 0 {
		return &pace{}
	}
	every := time.Duration(float64(l.workers) / l.rate * float64(time.Second))
	return &pace{next: now.Add(rand.N(every)), every: every}
}

// wait waits until the next call is due, and returns the time. A worker that is late makes up for it.
func (p *pace) wait(now time.Time) time.Time {
	if p.every == 0 {
		return now
	}
	due := p.next
	p.next = due.Add(p.every)
	if ahead := due.Sub(now); ahead > 0 {
		time.Sleep(ahead)
		return time.Now()
	}
	return now
}
