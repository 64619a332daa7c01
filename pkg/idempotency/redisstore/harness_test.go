package redisstore_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
	"github.com/envoy-rls/envoy-rls/pkg/idempotency/redisstore"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

const (
	// capacity is what ann may spend. Nothing comes back in the time of a test.
	capacity = 20_000
	policies = `
policies:
  - {id: user, key: [user], algorithm: token-bucket, capacity: 20000, refillPerDay: 10, onStoreFailure: closed}
`
	// patient is for a machine that is busy with other tests.
	patient = 20 * time.Second
	// lease is over when a test says so.
	lease = 10 * time.Minute
)

// instance is one of several of a service: the limiter and the answers are on Redis.
type instance struct {
	http.Handler
	limiter *ratelimit.Limiter
	client  redis.UniversalClient
	close   func()
}

// newInstance makes an instance on the Redis at urls. wrap may put something around its store.
func newInstance(urls []string, wrap func(idempotency.Store) idempotency.Store, next http.Handler) (*instance, error) {
	limiter, closeLimiter, err := newLimiter(urls)
	if err != nil {
		return nil, err
	}
	addrs := make([]string, len(urls))
	for i, url := range urls {
		addrs[i] = strings.TrimPrefix(url, "redis://")
	}
	client := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, ContextTimeoutEnabled: true, DisableIdentity: true})
	i := &instance{limiter: limiter, client: client, close: func() {
		closeLimiter()
		_ = client.Close()
	}}
	if i.Handler, err = newHandler(limiter, client, wrap, next); err != nil {
		i.close()
		return nil, err
	}
	return i, nil
}

func newLimiter(urls []string) (*ratelimit.Limiter, func(), error) {
	file, err := policy.Parse("policies.yaml", []byte(policies))
	if err != nil {
		return nil, nil, err
	}
	set, err := policy.NewSet([]*policy.File{file})
	if err != nil {
		return nil, nil, err
	}
	buckets, err := redisbackend.New(redisbackend.Options{URLs: urls, Timeout: patient, ConnectionTimeout: patient})
	if err != nil {
		return nil, nil, err
	}
	if err := buckets.Start(context.Background()); err != nil {
		return nil, nil, err
	}
	return ratelimit.New(ratelimit.Options{Store: buckets, Policies: set}), buckets.Close, nil
}

func newHandler(l *ratelimit.Limiter, c redis.UniversalClient, wrap func(idempotency.Store) idempotency.Store, next http.Handler) (http.Handler, error) {
	account := func(r *http.Request) (string, bool) { return r.Header.Get("Account"), true }
	limit, err := httplimit.New(httplimit.Options{Limiter: l, Attributes: []httplimit.Attribute{httplimit.Header("user", "Account")}})
	if err != nil {
		return nil, err
	}
	answers, err := redisstore.New(redisstore.Options{Client: c})
	if err != nil {
		return nil, err
	}
	store := idempotency.Store(answers)
	if wrap != nil {
		store = wrap(answers)
	}
	m, err := idempotency.New(idempotency.Options{Store: store, Account: account, Limit: limit.Handler, Lease: lease, StoreTimeout: patient})
	if err != nil {
		return nil, err
	}
	return m.Handler(next), nil
}

// charged is how much ann has spent.
func (i *instance) charged() (int, error) {
	d, err := i.limiter.Peek(context.Background(), ratelimit.Request{Attributes: map[string]string{"user": "ann"}})
	if err != nil {
		return 0, err
	}
	result := d.Checks[0].Result
	return capacity - int(result.Remaining), errors.Join(result.Err)
}

// post has the instance answer ann's request.
func (i *instance) post() *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader("{}"))
	r.Header.Set("Account", "ann")
	r.Header.Set(idempotency.FieldKey, `"k"`)
	rec := httptest.NewRecorder()
	i.ServeHTTP(rec, r)
	return rec
}
