package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// passwordVariable is the environment variable with the password of the page.
const passwordVariable = "QUORUMLOCK_SERVE_PASSWORD"

// access has the flags that restrict access to the page.
type access struct {
	User         string `default:"quorumlock" placeholder:"NAME" help:"The user name for the password."`
	PasswordFile string `placeholder:"FILE" help:"Require the password in the first line of this file (basic auth). Default: the value of QUORUMLOCK_SERVE_PASSWORD, if set."`
	HTTPSCert    string `name:"https-cert" placeholder:"FILE" help:"Serve HTTPS with this certificate, as PEM. It needs --https-key."`
	HTTPSKey     string `name:"https-key" placeholder:"FILE" help:"The key of the certificate, as PEM."`
	HTTPSClients string `name:"https-client-ca" placeholder:"FILE" help:"Admit only clients with a certificate of one of these authorities, as PEM."`
	WithoutAuth  bool   `help:"Admit every client that can reach the address, even beyond loopback, and under any host name: for use behind a proxy that requires a password."`
}

const minPassword = 8 // bytes

// password returns the password of the page, or "" if there is none.
func (a *access) password() (string, error) {
	if a.PasswordFile == "" {
		p := os.Getenv(passwordVariable)
		if p != "" && len(p) < minPassword {
			return "", fmt.Errorf("%s has %d bytes: use at least %d", passwordVariable, len(p), minPassword)
		}
		return p, nil
	}
	return passwordIn(a.PasswordFile)
}

// tls returns the TLS configuration of the server, or nil. It reads the files again for each new
// connection, since certificates are rotated. After a failure it uses the last ones.
func (a *access) tls() (*tls.Config, error) {
	config, err := a.read()
	if config == nil || err != nil || !areFiles(a.HTTPSCert, a.HTTPSKey, a.HTTPSClients) {
		return config, err
	}
	var last atomic.Pointer[tls.Config]
	last.Store(config)
	config = config.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if now, err := a.read(); err == nil {
			last.Store(now)
		}
		return last.Load(), nil
	}
	return config, nil
}

// read reads the files of the TLS configuration. It returns nil without HTTPS.
func (a *access) read() (*tls.Config, error) {
	if (a.HTTPSCert == "") != (a.HTTPSKey == "") {
		return nil, errors.New("--https-cert and --https-key go together: give both")
	}
	if a.HTTPSCert == "" {
		if a.HTTPSClients != "" {
			return nil, errors.New("--https-client-ca needs HTTPS: give --https-cert and --https-key, too")
		}
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(a.HTTPSCert, a.HTTPSKey)
	if err != nil {
		return nil, fmt.Errorf("--https-cert: %w", err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	if a.HTTPSClients != "" {
		pem, err := os.ReadFile(a.HTTPSClients)
		if err != nil {
			return nil, fmt.Errorf("--https-client-ca: %w", err)
		}
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		config.SessionTicketsDisabled = true // a ticket would outlive the authority of its client
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--https-client-ca: %s has no certificate in PEM", a.HTTPSClients)
		}
	}
	return config, nil
}

// gate checks access, and refuses every request with a method that changes something.
type gate struct {
	next      http.Handler
	user      [sha256.Size]byte
	password  [sha256.Size]byte      // guarded by mu
	asks      bool                   // whether it requires the password
	reread    func() (string, error) // returns the present password; nil if it cannot change
	localOnly bool                   // answer only to names of this machine, against DNS rebinding in a browser here

	mu    sync.Mutex
	busy  map[netip.Prefix]int // requests in progress, by address
	all   int                  // the sum of busy
	wrong map[netip.Prefix]int // wrong passwords since begun, by address
	begun time.Time
}

const (
	maxRequests   = 64              // requests in progress; the gate refuses further ones
	maxRequestsOf = maxRequests / 4 // from one address, so that slow readers leave room for others
	maxWrong      = 10              // wrong passwords from one address in forgiveAfter
	maxWrongFrom  = 10_000          // addresses with wrong passwords in forgiveAfter
	forgiveAfter  = time.Minute
)

func newGate(next http.Handler, user, password string, localOnly bool) *gate {
	return &gate{next: next, user: sha256.Sum256([]byte(user)), password: sha256.Sum256([]byte(password)), asks: password != "",
		localOnly: localOnly, busy: make(map[netip.Prefix]int), wrong: make(map[netip.Prefix]int)}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "nothing can be changed here: use GET or HEAD", http.StatusMethodNotAllowed)
	case r.URL.Path == "/healthz", r.URL.Path == "/readyz": // for probes, without details
		g.next.ServeHTTP(w, r)
	case g.localOnly && !isLocal(r.Host):
		http.Error(w, "use localhost or the loopback address in the URL; if a proxy in front decides who may look, start serve with --without-auth", http.StatusMisdirectedRequest)
	case g.asks && g.guesses(r):
		h.Set("Retry-After", "60")
		http.Error(w, "too many wrong passwords from this address: try again in a minute", http.StatusTooManyRequests)
	case g.asks && !g.knows(r):
		h.Set("WWW-Authenticate", `Basic realm="quorumlock", charset="UTF-8"`)
		http.Error(w, "give a user name and a password", http.StatusUnauthorized)
	case !g.enter(r):
		h.Set("Retry-After", "1")
		http.Error(w, "too many requests at the same time: try again", http.StatusServiceUnavailable)
	default:
		defer g.leave(r)
		g.next.ServeHTTP(w, r)
	}
}

// enter reports whether a request may be answered now. If so, leave must follow.
func (g *gate) enter(r *http.Request) bool {
	from := address(r)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all >= maxRequests || g.busy[from] >= maxRequestsOf && !from.Addr().IsLoopback() {
		return false
	}
	g.all++
	g.busy[from]++
	return true
}

func (g *gate) leave(r *http.Request) {
	from := address(r)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all--
	if g.busy[from]--; g.busy[from] == 0 {
		delete(g.busy, from)
	}
}

// address returns the address of a request. All addresses of one IPv6 network count as one, since
// its owner has them all.
func address(r *http.Request) netip.Prefix {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	a := from.Addr().Unmap()
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the zero Prefix for an invalid address
	return p
}

// guesses reports whether an address has sent too many wrong passwords. The password of r itself
// does not matter.
func (g *gate) guesses(r *http.Request) bool {
	_, _, tries := r.BasicAuth()
	from, known := address(r), g.knows(r)
	// the first request of a browser; or a proxy for all its users
	if !tries || from.Addr().IsLoopback() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.begun) >= forgiveAfter {
		clear(g.wrong)
		g.begun = now
	}
	if g.wrong[from] >= maxWrong {
		return true
	}
	if _, counted := g.wrong[from]; !known && (counted || len(g.wrong) < maxWrongFrom) {
		g.wrong[from]++
	}
	return false
}

// knows compares hashes, so that its duration reveals nothing, not even the length. It reads the
// password again, since passwords are rotated, too.
func (g *gate) knows(r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	u, p := sha256.Sum256([]byte(user)), sha256.Sum256([]byte(password))
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reread != nil {
		if now, err := g.reread(); err == nil { // otherwise the last one counts
			g.password = sha256.Sum256([]byte(now))
		}
	}
	return subtle.ConstantTimeCompare(u[:], g.user[:])&subtle.ConstantTimeCompare(p[:], g.password[:]) == 1
}

// isLocal reports whether a host, with or without a port, is a name of this machine that no DNS
// server can point here.
func isLocal(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
