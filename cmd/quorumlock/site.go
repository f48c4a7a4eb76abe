package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/singleflight"

	"github.com/quorumlock/quorumlock"
)

//go:embed web
var web embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"shown": shown, "seconds": seconds, "ms": func(s float64) string { return fmt.Sprintf("%.2f ms", s*1000) },
	"lockLink": lockLink, "add": func(a, b int) int { return a + b }, "who": who, "holds": holds, "errorText": errorText,
	"holder": (*topLock).holder, "held": (*topLock).held,
	"firstWaiter": func(l *topLock) string { who, _ := l.head(); return who },
	"firstWaits":  func(l *topLock) string { _, waits := l.head(); return waits },
}).ParseFS(web, "web/*.html"))

// site answers requests. Only the page of a single lock sends requests to the nodes.
type site struct {
	o         *observer
	inspected singleflight.Group // by name: concurrent requests for one lock share the answer
}

func newSite(o *observer) http.Handler {
	s := &site{o: o}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", s.overview)
	mux.HandleFunc("/lock", s.lock)
	for _, file := range []string{"style.css", "page.js", "favicon.svg"} {
		mux.HandleFunc("/"+file, func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, web, "web/"+file) })
	}
	mux.Handle("/metrics", promhttp.HandlerFor(newRegistry(o), promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("/api/top", func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, s.o.view()) })
	mux.HandleFunc("/api/locks", s.listAsJSON)
	mux.HandleFunc("/api/lock", s.lockAsJSON)
	mux.HandleFunc("/api/check", s.checkAsJSON)
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { answerProbe(w, s.o.stalled(time.Now())) })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !s.o.ready() {
			answerProbe(w, "the first look at the nodes is not finished")
			return
		}
		answerProbe(w, s.o.stalled(time.Now()))
	})
	return mux
}

func answerProbe(w http.ResponseWriter, problem string) {
	if problem != "" {
		http.Error(w, problem, http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

func answerJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = writeJSON(w, value) // fails only if the client has gone
}

// listAsJSON answers with the output of list --json: one line for each lock.
func (s *site) listAsJSON(w http.ResponseWriter, _ *http.Request) {
	_, _, locks, _ := s.o.seen()
	if locks.at.IsZero() || locks.err != nil {
		http.Error(w, "the locks are not known: see /api/top", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	for _, l := range locks.locks {
		if writeJSON(w, l.lockView) != nil {
			return
		}
	}
}

func (s *site) checkAsJSON(w http.ResponseWriter, _ *http.Request) {
	_, check, _, _ := s.o.seen()
	if check.at.IsZero() {
		http.Error(w, "the nodes have not been checked yet: try again", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = (&checkCommand{JSON: true}).print(w, check.health) // fails only if the client has gone
}

func (s *site) lockAsJSON(w http.ResponseWriter, r *http.Request) {
	_, v, status, err := s.inspect(r)
	if err != nil && len(v.Nodes) == 0 {
		http.Error(w, errorText(err), status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = writeJSON(w, v)
}

// inspect inspects the lock in the request.
func (s *site) inspect(r *http.Request) (name string, v lockView, status int, err error) {
	name = r.URL.Query().Get("name")
	if coded := r.URL.Query().Get("name_base64"); coded != "" {
		b, err := base64.StdEncoding.DecodeString(coded)
		if err != nil {
			return "", v, http.StatusBadRequest, fmt.Errorf("name_base64: %w", err)
		}
		name = string(b)
	}
	if err := quorumlock.ValidateName(s.o.client.prefix + name); err != nil {
		return name, v, http.StatusBadRequest, err
	}
	type answer struct {
		v   lockView
		err error
	}
	// Concurrent requests share one look. Each node takes at most its timeout.
	a, _, _ := s.inspected.Do(name, func() (any, error) {
		v, err := s.o.client.inspect(context.WithoutCancel(r.Context()), name)
		return answer{v, err}, nil
	})
	v, err = a.(answer).v, a.(answer).err
	switch {
	case err == nil:
		return name, v, http.StatusOK, nil
	case isNoLock(err):
		return name, lockView{}, http.StatusNotFound, err
	}
	return name, v, http.StatusServiceUnavailable, err
}

// lockLink is the address of the page of a lock.
func lockLink(name string) template.URL {
	if !utf8.ValidString(name) {
		return template.URL("lock?name_base64=" + url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(name))))
	}
	return template.URL("lock?name=" + url.QueryEscape(name))
}

// locksPerPage bounds the work of a browser.
const locksPerPage = 100

// overviewPage is the data of the overview's template.
type overviewPage struct {
	topView
	Title    string
	Looked   bool // there was a look at the nodes
	Surveyed bool // a survey succeeded
	Failed   bool // the latest survey failed
	At       string
	LocksAt  string
	Checked  string
	Findings []finding
	Shown    []*topLock // the locks on this page
	Found    int        // number of locks that match
	From     int        // the number of the first lock on this page, from 1
	Match    string
	Before   int // the previous page; 0 for none
	After    int
	Timeline timeline
	Interval string
	Every    int64 // ms between updates
}

type finding struct{ Severity, Node, Problem, Fix string }

func (s *site) overview(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	nodes, check, locks, _ := s.o.seen()
	p := overviewPage{topView: s.o.view(), Looked: !nodes.at.IsZero(), Surveyed: !locks.at.IsZero(), Failed: locks.err != nil,
		At: clock(nodes.at), LocksAt: clock(locks.at), Checked: clock(check.at), Match: r.URL.Query().Get("match"), Interval: s.o.interval.String(), Every: s.o.interval.Milliseconds()}
	p.Title = "looking at the nodes ..."
	if p.Looked {
		p.Title = p.summary()
	}
	for _, f := range check.health.Findings {
		p.Findings = append(p.Findings, finding{string(f.Severity), f.Node, f.Problem, f.Fix})
	}
	matching := p.Locks
	if p.Match != "" {
		matching = slices.DeleteFunc(slices.Clone(p.Locks), func(l *topLock) bool { return !strings.Contains(l.Name, p.Match) })
	}
	p.Found = len(matching)
	page, _ := strconv.Atoi(r.URL.Query().Get("page"))
	last := max((p.Found+locksPerPage-1)/locksPerPage, 1)
	page = max(min(page, last), 1)
	p.Shown = matching[(page-1)*locksPerPage : min(page*locksPerPage, p.Found)]
	p.From, p.Before = (page-1)*locksPerPage+1, page-1
	if page < last {
		p.After = page + 1
	}
	p.Timeline = s.o.timeline(p.Shown, p.Match, now)
	answerPage(w, "overview.html", http.StatusOK, p)
}

// timeline draws the locks of a page, and further ones as space permits.
func (o *observer) timeline(locks []*topLock, match string, now time.Time) timeline {
	names := make([]string, len(locks))
	for i, l := range locks {
		names[i] = l.Name
	}
	o.mu.Lock()
	drawn, left := o.past.rows(names, match, maxRows)
	nodes := make([]track, len(o.past.nodes))
	for i, t := range o.past.nodes {
		nodes[i] = t.copy()
	}
	blind := o.past.blind.copy()
	o.mu.Unlock()
	return draw(nodes, drawn, blind, left, now, o.past.window(now))
}

// lockPage is the data of the lock page's template.
type lockPage struct {
	lockView
	Title string
	At    string
	Error string
	Left  int   // waiters that are not shown
	Every int64 // ms between updates
}

func (s *site) lock(w http.ResponseWriter, r *http.Request) {
	name, v, status, err := s.inspect(r)
	if status == http.StatusBadRequest {
		http.Error(w, errorText(err), status)
		return
	}
	v.Name = name
	answerPage(w, "lock.html", status, lockPage{v, shown(name), clock(time.Now()), errorText(err), v.State.Waiting - len(v.State.Queue), s.o.interval.Milliseconds()})
}

// answerPage renders the whole page before it sends anything, so that no client gets half a page.
func answerPage(w http.ResponseWriter, name string, status int, data any) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, data); err != nil {
		http.Error(w, "this page cannot be drawn", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = b.WriteTo(safeWriter{w})
}

// clock formats a time in UTC, as in logs.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}
