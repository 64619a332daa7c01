package buckets

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/adminhttp"
	"github.com/envoy-rls/envoy-rls/pkg/blocklist"
)

// Where a service answers.
const (
	Path       = "/api/v1/buckets/" // and an action
	BlocksPath = "/api/v1/blocks"
	AuditPath  = "/api/v1/audit"
)

// patience is how long a request may take, once it is read. It does not end when the client leaves: what was begun is audited.
const patience = 3 * time.Second

// Handler serves the three paths.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	for _, action := range Actions() {
		mux.Handle(Path+string(action), o.handle(action))
	}
	mux.HandleFunc(BlocksPath, o.listBlocks)
	mux.HandleFunc(AuditPath, o.listAudit)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		names := make([]string, 0, len(Actions()))
		for _, a := range Actions() {
			names = append(names, string(a))
		}
		name := strings.TrimPrefix(r.URL.Path, Path)
		adminhttp.Fail(w, http.StatusNotFound, "there is no "+shorten(r.URL.Path)+hint(name, names))
	})
	return mux
}

// handle answers requests for one action.
func (o Options) handle(action Action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !adminhttp.Posted(w, r, "which bucket") {
			return
		}
		report, outcome, err := o.answer(w, r, action)
		if action != Show {
			o.OnAttempt(action, outcome)
		}
		if err != nil {
			fail(w, err)
			return
		}
		adminhttp.Reply(w, http.StatusOK, report)
	})
}

var errNobody = errors.New("nothing can be changed here: nobody is allowed to")

// answer does what is asked for, and audits it.
func (o *Options) answer(w http.ResponseWriter, r *http.Request, action Action) (report Report, outcome string, err error) {
	actor := ""
	if action != Show {
		if o.Authorize == nil {
			return report, refused, errNobody
		}
		if actor, err = o.Authorize(r); err != nil {
			return report, refused, err
		}
	}
	q, err := read(action, http.MaxBytesReader(w, r.Body, maxBytes))
	if err != nil {
		return report, invalid, err
	}
	t, err := o.find(&q.which)
	if err != nil {
		return report, invalid, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), patience)
	defer cancel()
	if action == Show {
		report, err = o.show(ctx, t)
		return report, done, err
	}
	report, err = o.change(ctx, action, q, t, actor)
	outcome = outcomeOf(err)
	if outcome != invalid {
		o.Audit.add(ctx, entryOf(r, q, &report, actor, outcome, err))
	}
	return report, outcome, err
}

func (o *Options) show(ctx context.Context, t *target) (Report, error) {
	r := Report{Action: Show, Policy: t.policyID, Key: t.key.Hidden(), Limit: t.limits.Capacity, Shadow: t.shadow()}
	var err error
	r.After, err = o.state(ctx, t)
	return r, err
}

func outcomeOf(err error) string {
	var f *fault
	switch {
	case err == nil:
		return done
	case errors.Is(err, errUnknown):
		return unknown
	case errors.As(err, &f) && f.status < http.StatusInternalServerError:
		return invalid
	}
	return failed
}

func entryOf(r *http.Request, q *question, report *Report, actor, outcome string, err error) Entry {
	from, _, splitErr := net.SplitHostPort(r.RemoteAddr)
	if splitErr != nil {
		from = r.RemoteAddr
	}
	e := Entry{
		ID: strings.ToLower(rand.Text()[:16]), At: time.Now().UTC().Truncate(time.Millisecond), Actor: actor, From: from,
		Action: report.Action, Outcome: outcome, Policy: report.Policy, Key: report.Key, Cost: q.Cost, Reason: q.Reason,
	}
	if report.Before != nil {
		e.Before = &report.Before.Remaining
	}
	if err != nil {
		e.Error = err.Error()
		return e
	}
	e.After = &report.After.Remaining
	if b := report.After.Block; b != nil && report.Action == Block {
		e.Until = &b.Until
	}
	return e
}

const (
	usualList = 100
	mostList  = 10_000
)

// limitOf reads ?limit=, how many elements to list.
func limitOf(r *http.Request) (int, error) {
	given := r.URL.Query().Get("limit")
	if given == "" {
		return usualList, nil
	}
	n, err := strconv.Atoi(given)
	if err != nil || n < 1 || n > mostList {
		return 0, faultf(http.StatusBadRequest, "limit: want a whole number from 1 to %d", mostList)
	}
	return n, nil
}

// BlockList is the answer of BlocksPath.
type BlockList struct {
	Count  int         `json:"count"`
	Blocks []BlockView `json:"blocks"` // those that end first
}

func (o Options) listBlocks(w http.ResponseWriter, r *http.Request) {
	n, err := readOnly(w, r)
	if err != nil {
		fail(w, err)
		return
	}
	list := ListBlocks(o.Blocks)
	list.Blocks = list.Blocks[:min(n, len(list.Blocks))]
	adminhttp.Reply(w, http.StatusOK, list)
}

// ListBlocks lists what is blocked.
func ListBlocks(s *blocklist.Store) BlockList {
	blocks := s.Blocks()
	list := BlockList{Count: len(blocks), Blocks: []BlockView{}}
	for _, b := range blocks {
		list.Blocks = append(list.Blocks, viewOf(b))
	}
	slices.SortStableFunc(list.Blocks, func(a, b BlockView) int { return a.Until.Compare(b.Until) })
	return list
}

// AuditList is the answer of AuditPath.
type AuditList struct {
	Scope   string  `json:"scope"`   // "all instances" or "this instance"
	Entries []Entry `json:"entries"` // the newest first
}

func (o Options) listAudit(w http.ResponseWriter, r *http.Request) {
	n, err := readOnly(w, r)
	if err != nil {
		fail(w, err)
		return
	}
	list := AuditList{Scope: thisInstance, Entries: []Entry{}}
	entries, all := o.Audit.list(r.Context(), n)
	list.Entries = append(list.Entries, entries...)
	if all {
		list.Scope = allInstances
	}
	adminhttp.Reply(w, http.StatusOK, list)
}

func readOnly(w http.ResponseWriter, r *http.Request) (limit int, err error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return 0, faultf(http.StatusMethodNotAllowed, "%s can only be read", r.URL.Path)
	}
	return limitOf(r)
}

func fail(w http.ResponseWriter, err error) {
	status := http.StatusForbidden
	var f *fault
	var own interface{ Status() int }
	switch {
	case errors.As(err, &f):
		status = f.status
	case errors.As(err, &own):
		status = own.Status()
	}
	adminhttp.Fail(w, status, err.Error())
}
