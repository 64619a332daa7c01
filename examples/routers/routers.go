// Package routers shows how the limiter's middleware goes into routers other than [net/http.ServeMux]. Copy what you need: it is a line for
// chi and an adapter of five for gin. Both make the attribute route the method and the pattern, such as "POST /users/{id}/payments", and gin's ":id".
package routers

import (
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"

	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
)

// Chi limits a route of chi's. Chi notes the pattern in the request when it has found the route, so that [httplimit.Route] with a nil mux knows
// it in middleware that is given by With or Group; in middleware given by Use, the route is not found yet.
func Chi(limit *httplimit.Middleware, pay http.HandlerFunc) http.Handler {
	r := chi.NewRouter()
	r.With(limit.Handler).Post("/users/{id}/payments", pay)
	return r
}

// Gin limits a route of gin's.
func Gin(limit *httplimit.Middleware, pay gin.HandlerFunc) http.Handler {
	r := gin.New()
	r.POST("/users/:id/payments", forGin(limit), pay)
	return r
}

// forGin makes a gin handler of limit. Gin has found the route before any middleware runs, also one given by Use.
func forGin(limit *httplimit.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Request.Pattern = c.FullPath()
		if !limit.Allow(c.Writer, c.Request) {
			c.Abort()
		}
	}
}
