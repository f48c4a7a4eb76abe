// Package redlockhttp has the HTTP parts of a redlock client: a health handler for probes, and a
// wrapper for handlers that admits one request per lock at a time. It is a separate package so that
// package redlock does not need net/http.
//
//	http.Handle("/readyz", redlockhttp.Health(client))
package redlockhttp

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/quorumlock/quorumlock/redlock"
)

// Health returns a handler that answers GET and HEAD with status 200 if a quorum of the client's
// nodes would grant a lock, and with 503 if not. The handler is safe for concurrent use. The body
// is JSON:
//
//	{"ok":true,"quorum":2,"ready":3,"may_fail":1,
//	 "nodes":[{"node":"10.0.0.1:6379","ok":true,"round_trip_seconds":0.0004}, ...]}
//
// The field may_fail is the number of further nodes that may fail before no lock is granted;
// without a quorum it is negative. The body names nodes by their addresses, and has no passwords
// and no error texts. The client's log has the failed nodes and their errors, see
// [github.com/quorumlock/quorumlock.WithLogger].
//
// Concurrent requests, and requests in the 200 ms after an answer, share that answer. So a flood of
// requests asks the nodes at most five times a second. An answer takes at most the timeout of a
// node: one second, unless node.WithTimeout sets another. With a nil client, or if the request's
// context is done first, the handler answers 503 without nodes.
func Health(client *redlock.Client) http.Handler {
	return &health{client: client}
}

// maxAge is how long an answer of the nodes is reused.
const maxAge = 200 * time.Millisecond

type health struct {
	client *redlock.Client
	asking singleflight.Group // with one key: guards the fields below
	last   report
	came   time.Time // the time of last; zero if there is none
}

// report is the body of an answer.
type report struct {
	OK      bool         `json:"ok"`
	Quorum  int          `json:"quorum"`
	Ready   int          `json:"ready"`
	MayFail int          `json:"may_fail"`
	Nodes   []nodeReport `json:"nodes"`
}

type nodeReport struct {
	Node      string  `json:"node"`
	OK        bool    `json:"ok"`
	RoundTrip float64 `json:"round_trip_seconds"`
}

func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	body := report{Nodes: []nodeReport{}}
	if h.client != nil {
		// All requests share this answer, so a cancelled request must not end it.
		ctx := context.WithoutCancel(r.Context())
		answer := h.asking.DoChan("", func() (any, error) { return h.look(ctx), nil })
		select {
		case a := <-answer:
			body = a.Val.(report)
		case <-r.Context().Done(): // 503, for a middleware that still answers
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !body.OK {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if r.Method == http.MethodGet {
		_ = json.NewEncoder(w).Encode(body) // fails only if the client has gone
	}
}

// look returns the readiness of the nodes, which is at most maxAge old. Only one call runs at a
// time.
func (h *health) look(ctx context.Context) report {
	if !h.came.IsZero() && time.Since(h.came) < maxAge {
		return h.last
	}
	found, err := h.client.Ready(ctx)
	body := report{OK: err == nil, Quorum: found.Quorum, Ready: found.Quorum + found.MayFail(), MayFail: found.MayFail(), Nodes: []nodeReport{}}
	for _, n := range found.Nodes {
		body.Nodes = append(body.Nodes, nodeReport{n.Node, n.Err == nil, n.RoundTrip.Seconds()})
	}
	h.last, h.came = body, time.Now()
	return body
}
