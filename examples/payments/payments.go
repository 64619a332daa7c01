package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// sessions are the users by the token of their session. A real service asks a session store, or verifies a signature.
var sessions = map[string]string{"session-ann": "ann", "session-ben": "ben", "session-cleo": "cleo"}

type userKey struct{}

// userOf gives the user whom authenticated has found. What a client says of itself is no user.
func userOf(r *http.Request) (string, bool) {
	user, ok := r.Context().Value(userKey{}).(string)
	return user, ok
}

// authenticated lets only requests of users with a session through.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		user, ok := sessions[token]
		if !ok {
			http.Error(w, "log in first", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

// newHandler is the service: who is it, may they, do it. instance names this one of several.
func newHandler(limiter *ratelimit.Limiter, instance string) (http.Handler, error) {
	limit, err := newLimit(limiter)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", authenticated(limit.Handler(initiate(instance))))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux, nil
}

// initiate is where the money would move.
func initiate(instance string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _ := userOf(r)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "a payment of %s, initiated by %s\n", user, instance)
	})
}
