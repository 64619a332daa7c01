package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/admin"
)

//go:embed assets
var assets embed.FS

// csp lets the page load what the service serves, and nothing else: no script that stands in the page, no other host, no frame around it.
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// types are those of the files that the page loads.
var types = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

// file is one of them.
type file struct {
	body []byte
	kind string
	etag string
}

// Home serves the page, for those who want HTML.
func (p *Page) Home() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", csp)
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(p.snapshot().renderPage()) // a client that left is no fault of ours
	})
}

// Routes are what else there is to be read.
func (p *Page) Routes() []admin.Route {
	return []admin.Route{
		{Path: "/api/v1/topkeys", Shows: "the keys that each policy allows and denies most, in a hidden form", Handler: answer(func() any {
			return map[string]any{"halfLifeSeconds": halfLife, "uncounted": p.Keys.Uncounted(), "policies": p.Keys.Top(mostKeys)}
		})},
		{Path: "/api/v1/unmatched", Shows: "descriptors that fed no policy, the nearest policy, and why", Handler: answer(func() any {
			return map[string]any{"halfLifeSeconds": halfLife, "unmatched": p.shapes.list(p.opts.Set())}
		})},
		{Path: "/api/v1/events", Shows: "server-sent events: what the page shows, each second", Handler: http.HandlerFunc(p.serveEvents)},
		{Path: assetPath, Handler: p.files()},
	}
}

const assetPath = "/assets/"

// files serves what the page loads.
func (p *Page) files() http.Handler {
	all := map[string]file{}
	_ = fs.WalkDir(assets, "assets", func(name string, entry fs.DirEntry, err error) error {
		kind, ok := types[path.Ext(name)]
		if err != nil || entry.IsDir() || !ok {
			return err
		}
		body, err := assets.ReadFile(name)
		sum := sha256.Sum256(body)
		all["/"+name] = file{body, kind, `"` + hex.EncodeToString(sum[:8]) + `"`}
		return err
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := all[r.URL.Path]
		if !ok {
			refuse(w, http.StatusNotFound, "there is no "+strings.ToValidUTF8(r.URL.Path, "\uFFFD"))
			return
		}
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("Content-Type", f.kind)
		w.Header().Set("ETag", f.etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
	})
}

func answer(body func() any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		b, _ := json.MarshalIndent(body(), "", "  ") // as with snapshots
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(b, '\n'))
	})
}

func refuse(w http.ResponseWriter, status int, message string) {
	b, _ := json.Marshal(map[string]string{"error": message})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// pages are the templates. They are part of the program: a fault in them is found by any test.
var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"percent": percent, "rate": formatRate, "calls": formatCalls, "micros": formatMicros, "time": formatTime, "ago": formatAgo, "keylist": newKeyList, "act": newAct,
}).ParseFS(assets, "assets/*.html"))

// renderPage gives the whole page.
func (m *made) renderPage() []byte {
	m.rendering.Do(func() { m.html = m.render("page.html") })
	return m.html
}

// renderTables gives the parts of the page that change, as JSON: a text of HTML.
func (m *made) renderTables() []byte {
	b, _ := json.Marshal(string(m.render("live")))
	return b
}

func (m *made) render(name string) []byte {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, &m.Snapshot); err != nil {
		return []byte("the page cannot be shown; /api/v1/status can\n") // a bug, but not one to end the service
	}
	return b.Bytes()
}
