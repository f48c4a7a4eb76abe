// Package redlockhttp has what an HTTP service needs from a redlock client: a handler that shows probes the health of the
// nodes, and a wrapper for handlers that lets in one request per lock at a time. It is a package of its own so that package
// redlock does not need net/http.
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

// Health returns a handler that answers GET and HEAD with status 200 if a quorum of the client's nodes would grant a lock,
// and with 503 if not. The body is JSON:
//
//	{"ok":true,"quorum":2,"ready":3,"may_fail":1,"nodes":[{"node":"10.0.0.1:6379","ok":true,"round_trip_ms":0.4}, ...]}
//
// The field may_fail is how many more nodes may fail before no lock is granted; it is negative if there is no quorum.
// The body names nodes by their addresses, and has no passwords and no error texts. The client's log says which nodes fail
// and why, see [github.com/quorumlock/quorumlock.WithLogger].
//
// Requests that arrive while the nodes are being asked share one answer, and requests in the 200 ms after it get the same one.
// So a flood of requests asks the nodes no more than five times a second. An answer takes at most the timeout of a node, which
// is a second unless node.WithTimeout says otherwise. With a nil client, or if the request's context is done first, the handler
// answers 503 and names no nodes.
func Health(client *redlock.Client) http.Handler {
	return &health{client: client}
}

// maxAge is for how long an answer of the nodes is used again.
const maxAge = 200 * time.Millisecond

type health struct {
	client *redlock.Client
	asking singleflight.Group // of one key: it guards what is below
	last   report
	came   time.Time // when last came; zero if there is none
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
	Node        string  `json:"node"`
	OK          bool    `json:"ok"`
	RoundTripMS float64 `json:"round_trip_ms"`
}

func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	body := report{Nodes: []nodeReport{}}
	if h.client != nil {
		// All requests share this look at the nodes, so it goes on if one of them is cancelled.
		ctx := context.WithoutCancel(r.Context())
		answer := h.asking.DoChan("", func() (any, error) { return h.look(ctx), nil })
		select {
		case a := <-answer:
			body = a.Val.(report)
		case <-r.Context().Done(): // 503: whoever bounds the request may pass the answer on
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !body.OK {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if r.Method == http.MethodGet {
		_ = json.NewEncoder(w).Encode(body) // whoever asked has gone, if it fails
	}
}

// look returns what the nodes say, or have said within the last maxAge. Only one call runs at a time.
func (h *health) look(ctx context.Context) report {
	if !h.came.IsZero() && time.Since(h.came) < maxAge {
		return h.last
	}
	found, err := h.client.Ready(ctx)
	body := report{OK: err == nil, Quorum: found.Quorum, Ready: found.Ready(), MayFail: found.MayFail(), Nodes: []nodeReport{}}
	for _, n := range found.Nodes {
		body.Nodes = append(body.Nodes, nodeReport{n.Node, n.Err == nil, float64(n.RoundTrip.Microseconds()) / 1000})
	}
	h.last, h.came = body, time.Now()
	return body
}
