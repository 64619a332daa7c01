package redislimit

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

func TestClassify(t *testing.T) {
	tell := classify(10 * time.Millisecond)
	began := time.Now()
	for name, tt := range map[string]struct {
		err  error
		want fallback.Fault
	}{
		"no answer in time": {
			&redisbackend.Error{Reason: redisbackend.ReasonTimeout, Node: "a", MayHaveRun: true, Began: began, Waited: 10 * time.Millisecond},
			fallback.Fault{Shard: "a", Reason: "timeout", MayHaveRun: true, Sent: began, Trouble: true},
		},
		"the caller had time enough": {
			&redisbackend.Error{Reason: redisbackend.ReasonUnsent, Node: "a", Waited: 5 * time.Millisecond},
			fallback.Fault{Shard: "a", Reason: "unsent", Trouble: true},
		},
		"the caller had not": {
			&redisbackend.Error{Reason: redisbackend.ReasonTimeout, Node: "a", Waited: 4 * time.Millisecond},
			fallback.Fault{Shard: "a", Reason: "timeout"},
		},
		"the caller had left": {
			&redisbackend.Error{Reason: redisbackend.ReasonUnsent},
			fallback.Fault{Reason: "unsent"},
		},
		"this machine was busy": {
			&redisbackend.Error{Reason: redisbackend.ReasonTimeout, Node: "a", Waited: 21 * time.Millisecond},
			fallback.Fault{Shard: "a", Reason: "timeout"},
		},
		"no node": {
			fmt.Errorf("wrapped: %w", &redisbackend.Error{Reason: redisbackend.ReasonNoNode, Waited: time.Microsecond}),
			fallback.Fault{Reason: "no-node", Trouble: true},
		},
		"closed":                      {&redisbackend.Error{Reason: redisbackend.ReasonClosed}, fallback.Fault{Reason: "closed"}},
		"a script flushed":            {&redisbackend.Error{Reason: redisbackend.ReasonNoScript, Node: "a"}, fallback.Fault{Shard: "a", Reason: "noscript", Answered: true}},
		"a slot that moves":           {&redisbackend.Error{Reason: redisbackend.ReasonTryAgain, Node: "a"}, fallback.Fault{Shard: "a", Reason: "tryagain", Answered: true}},
		"an error of somebody else's": {errors.New("other"), fallback.Fault{}},
		"a context's":                 {context.Canceled, fallback.Fault{}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.want, tell(tt.err)) })
	}
}
