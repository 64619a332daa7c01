package app

import (
	"net/http"

	"github.com/envoy-rls/envoy-rls/internal/admin"
)

// BucketPages are the pages about single buckets, for somebody who may change them.
func (a *App) BucketPages() http.Handler {
	return a.bucketPages(&admin.Options{Authorize: func(*http.Request) (string, error) { return "tester", nil }})
}
