package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// TestFiveAUser is the service without Redis: its policies with the counts in memory. What it does on Redis and behind Envoy is tested in e2e.
func TestFiveAUser(t *testing.T) {
	set, err := policy.Load("service.yaml")
	if err != nil {
		t.Fatal(err)
	}
	handler, err := newHandler(ratelimit.New(ratelimit.Options{Store: memorybackend.New(memorybackend.Options{}), Policies: set}), "test")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, token string
		want        []int
	}{
		{"ann", "session-ann", []int{201, 201, 201, 201, 201, 429}},
		{"ben has five of his own", "session-ben", []int{201, 201, 201, 201, 201, 429}},
		{"not logged in", "session-nobody", []int{401}},
		{"ann still has none", "session-ann", []int{429}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for i, want := range tt.want {
				r := httptest.NewRequest(http.MethodPost, "/payments", nil)
				r.Header.Set("Authorization", "Bearer "+tt.token)
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				if w.Code != want {
					t.Errorf("payment %d: got %d, want %d", i+1, w.Code, want)
				}
			}
		})
	}
}
