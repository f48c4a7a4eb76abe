package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// headerToken is the header of a request with the token, in decimal.
const headerToken = "Fencing-Token"

// headerSeen is the header of a response with status 412: the highest token seen.
const headerSeen = "Fencing-Token-Seen"

type contextKey struct{}

// inContext is the value of contextKey: a token, and the lease that its context descends from.
type inContext struct {
	token uint64
	lease *quorumlock.Lease
}

// NewContext returns a context with a fencing token that comes without a lease, such as that of a
// request from another process. The context of a lease needs none: see [FromContext].
func NewContext(parent context.Context, token uint64) context.Context {
	lease, _ := quorumlock.LeaseOf(parent)
	return context.WithValue(parent, contextKey{}, inContext{token, lease})
}

// FromContext returns the fencing token of ctx: that of the lease that ctx descends from, as in a
// function of [quorumlock.Do], or that of [NewContext]. [Middleware] puts the token of a request
// into the request's context. If there are several tokens, the innermost counts. So call
// FromContext before you acquire a second lock for another resource. A nil ctx has no token.
func FromContext(ctx context.Context) (token uint64, ok bool) {
	if ctx == nil {
		return 0, false
	}
	lease, leased := quorumlock.LeaseOf(ctx)
	if in, ok := ctx.Value(contextKey{}).(inContext); ok && in.lease == lease {
		return in.token, true // within the lease
	}
	if !leased {
		return 0, false
	}
	return lease.Token(), true
}

// Transport returns a RoundTripper that sends the token of a request's context, see [FromContext],
// in the header Fencing-Token. It sends a request without a token unchanged: the service refuses it if a token
// is needed. base sends the requests; nil means [http.DefaultTransport]. A Transport is safe for
// concurrent use if base is.
func Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return transport{base}
}

type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if token, ok := FromContext(r.Context()); ok {
		r = r.Clone(r.Context()) // a RoundTripper must not change the request
		r.Header.Set(headerToken, strconv.FormatUint(token, 10))
	}
	return t.base.RoundTrip(r)
}

// CheckResponse returns a *[StaleError], which matches [ErrStale], if [Middleware] refused the
// request for a stale token, and nil otherwise. It does not read the body.
func CheckResponse(r *http.Response) error {
	if r == nil || r.StatusCode != http.StatusPreconditionFailed {
		return nil
	}
	seen, err := strconv.ParseUint(r.Header.Get(headerSeen), 10, 64)
	if err != nil {
		return nil // a precondition of another kind
	}
	stale := &StaleError{Seen: seen}
	if r.Request != nil {
		stale.Resource = r.Request.URL.Path
		stale.Token, _ = FromContext(r.Request.Context())
	}
	return stale
}

// Middleware returns a wrapper for handlers that refuses requests with a stale token. resource
// returns the name of the resource that a request writes to: one name for everything that one lock
// protects. The handler finds the token with [FromContext].
//
// In place of the handler, it answers
//
//   - 412 Precondition Failed, with the header Fencing-Token-Seen, if the token is lower than one that was seen;
//   - 428 Precondition Required if there is no token; a GET, HEAD or OPTIONS needs none;
//   - 400 Bad Request if the token or the name of the resource is malformed;
//   - 503 Service Unavailable if the store fails: nothing was compared.
//
// The first request of a holder marks its token. So a holder that reads before it writes sends the
// token with the read.
//
// The middleware trusts every token, and marks it for every method, GET included. A client that may
// send tokens can send a huge one, and lock out the real holders for good. So authenticate and
// authorize requests outside the middleware:
//
//	http.Handle("/invoices/", authenticated(fence.Middleware(store, resource)(handler)))
//
// A store keeps a row, a key or a few bytes for each name that it has seen, usually forever.
// resource should return "" for a name that does not exist: a request with a token then gets a 400,
// and the store is not called. A GET, HEAD or OPTIONS without a token goes to the handler without a
// call of resource.
//
// An admitted request may be overtaken by one with a higher token before its handler writes.
// [Memory] excludes that: it admits one request at a time. With other stores the handler must check
// the token in the step that writes, with [SQL.Check], [TokenColumn.Set] or [Redis.Run]; the middleware
// then only refuses requests that arrive too late.
func Middleware(store Store, resource func(*http.Request) string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if settings.IsNil(store) || resource == nil || next == nil {
				http.Error(w, "quorumlock: fence: Middleware was given a nil store, resource function or handler", http.StatusInternalServerError)
				return
			}
			sent := r.Header.Values(headerToken)
			if len(sent) == 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions) {
				next.ServeHTTP(w, r)
				return
			}
			token, leave, status, err := enter(r, store, resource, sent)
			if err != nil {
				if stale, ok := errors.AsType[*StaleError](err); ok {
					w.Header().Set(headerSeen, strconv.FormatUint(stale.Seen, 10))
				}
				http.Error(w, err.Error(), status)
				return
			}
			defer leave()
			next.ServeHTTP(w, r.WithContext(NewContext(r.Context(), token)))
		})
	}
}

// enter returns the token of an admitted request, or an error and the status of the response.
func enter(r *http.Request, store Store, resource func(*http.Request) string, sent []string) (token uint64, leave func(), status int, err error) {
	if len(sent) == 0 {
		return 0, nil, http.StatusPreconditionRequired, fmt.Errorf("quorumlock: fence: the request has no %s header: send the token of the lease", headerToken)
	}
	token, err = strconv.ParseUint(sent[0], 10, 64)
	if err != nil || len(sent) > 1 || checkToken(token) != nil {
		return 0, nil, http.StatusBadRequest, fmt.Errorf("quorumlock: fence: the %s header %.80q is no fencing token: send that of the lease, once, in decimal", headerToken, sent)
	}
	name := resource(r)
	if err := checkResource(name); err != nil {
		return 0, nil, http.StatusBadRequest, err
	}
	leave, err = store.Enter(r.Context(), name, token)
	switch {
	case errors.Is(err, ErrStale):
		return 0, nil, http.StatusPreconditionFailed, err
	case err != nil:
		// The store's error may name hosts and users, which must not reach the client.
		return 0, nil, http.StatusServiceUnavailable, errors.New("quorumlock: fence: the store of fencing tokens failed: try again")
	}
	return token, leave, 0, nil
}
