package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
)

type serveCommand struct {
	connection
	access
	Pattern       string        `arg:"" optional:"" help:"A pattern of names, as in Redis."`
	Listen        string        `default:"127.0.0.1:8379" placeholder:"HOST:PORT" help:"The address to listen on. An address beyond this machine needs a password, client certificates or --without-auth."`
	Interval      time.Duration `default:"2s" placeholder:"D" help:"The interval between looks at nodes and locks, at least 200ms."`
	CheckInterval time.Duration `default:"1m" placeholder:"D" help:"The interval between checks of the nodes, at least 1s."`
	History       time.Duration `default:"10m" placeholder:"D" help:"The length of the timeline, 1m to 24h."`
	Limit         int           `default:"1000" placeholder:"N" help:"Look at no more than N locks, and at up to N further locks with waiters."`
	MetricsLock   []string      `placeholder:"NAME" sep:"none" help:"Serve metrics for this lock, too. Can be repeated up to 100 times."`
	Demo          bool          `help:"Run nodes inside the process, with clients at work. It needs no servers."`
}

func (serveCommand) manual() manual {
	return manual{
		synopsis: "[PATTERN] [--listen HOST:PORT] [--password-file FILE] [flags]\nquorumlock serve --demo",
		description: `Serves a page with the nodes, the locks and a timeline of holders, and metrics
for Prometheus. It is read only: no request can change anything.

/ is the page, /lock?name=NAME is one lock, and /metrics is for Prometheus. /api/top, /api/locks,
/api/lock?name=NAME and /api/check have the output of top, list, inspect and check with --json.
/healthz has status 200 while this process works, and /readyz after the first look at the nodes;
neither depends on the state of the nodes.

It listens on this machine only, unless --listen has another address. Other addresses need a
password or client certificates. Basic auth does not encrypt the password, so use it with
--https-cert, or with a proxy that serves HTTPS.`,
		environment: environment + "\n" + passwordVariable + "  the password of the page, if --password-file is not given",
		statuses: `0    ended by a signal
1    it failed: for example, the address is in use
2    the command line is wrong`,
		examples: `quorumlock serve --demo
quorumlock serve 'myapp:lock:*' --listen :8379 --password-file /etc/quorumlock/password \
    --https-cert cert.pem --https-key key.pem`,
	}
}

func (c *serveCommand) validate() error {
	switch {
	case c.Interval < 200*time.Millisecond:
		return usageError(fmt.Sprintf("serve: --interval %v is too short: use at least 200ms", c.Interval))
	case c.CheckInterval < time.Second:
		return usageError(fmt.Sprintf("serve: --check-interval %v is too short: use at least 1s", c.CheckInterval))
	case c.History < time.Minute || c.History > 24*time.Hour:
		return usageError(fmt.Sprintf("serve: --history %v: use 1m to 24h", c.History))
	case c.Limit < 1 || c.Limit > 10000:
		return usageError(fmt.Sprintf("serve: --limit %d: use 1 to 10000", c.Limit))
	case len(c.MetricsLock) > 100:
		return usageError(fmt.Sprintf("serve: --metrics-lock is given %d times: use it at most 100 times", len(c.MetricsLock)))
	case c.Demo && c.connection != connection{}:
		return usageError("serve: --demo has nodes of its own: leave out --nodes and all other flags about nodes")
	}
	for i, name := range c.MetricsLock {
		if err := quorumlock.ValidateName(c.Prefix + name); err != nil {
			return usageError("serve: --metrics-lock: " + err.Error())
		}
		if slices.Contains(c.MetricsLock[:i], name) {
			return usageError(fmt.Sprintf("serve: --metrics-lock %.80q is given twice: give each name once", name))
		}
	}
	return nil
}

func (c *serveCommand) Run(e *env) (err error) {
	if err := c.validate(); err != nil {
		return err
	}
	addr, err := net.ResolveTCPAddr("tcp", c.Listen)
	if err != nil {
		return usageError(fmt.Sprintf("serve: --listen %.80q: %v: use a host and a port, such as 127.0.0.1:8379", c.Listen, err))
	}
	password, err := c.access.password()
	if err != nil {
		return usageError("serve: " + err.Error())
	}
	secure, err := c.access.tls()
	if err != nil {
		return usageError("serve: " + err.Error())
	}
	local, asks := addr.IP.IsLoopback(), password != "" || c.HTTPSClients != ""
	if !local && !asks && !c.WithoutAuth {
		return usageError(fmt.Sprintf("serve: --listen %s is not loopback, so others could look: give --password-file, %s or --https-client-ca, or --without-auth if a proxy in front asks for a password", c.Listen, passwordVariable))
	}
	client, closeNodes, err := c.open(e.ctx)
	if err != nil {
		return err
	}
	defer func() { err = errs.Join(err, closeNodes()) }()

	listener, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	o := newObserver(client, c)
	g := newGate(newSite(o), c.User, password, local && !asks && !c.WithoutAuth)
	if areFiles(c.PasswordFile) {
		g.reread = c.access.password
	}
	s := &http.Server{
		Handler:           g,
		TLSConfig:         secure,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // anyone who connects could fill the log
	}
	scheme := "http"
	if secure != nil {
		scheme = "https"
	}
	if _, err := fmt.Fprintf(e.text, "quorumlock serves %s://%s/\n", scheme, listener.Addr()); err != nil {
		return errs.Join(err, listener.Close())
	}
	if !local && password != "" && secure == nil {
		_, _ = fmt.Fprintln(e.stderr, "quorumlock: the password is not encrypted: use --https-cert, or a proxy in front that serves HTTPS")
	}
	return serve(e.ctx, s, listener, o)
}

// open returns the nodes to look at, and a function that closes them.
func (c *serveCommand) open(ctx context.Context) (*cluster, func() error, error) {
	if c.Demo {
		return openDemo(ctx)
	}
	client, err := c.dial("serve")
	if err != nil {
		return nil, nil, err
	}
	return client, client.Close, nil
}

// serve answers requests until ctx is done, and returns when all its goroutines have ended.
func serve(ctx context.Context, s *http.Server, l net.Listener, o *observer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { o.run(ctx) })
	running.Go(func() {
		<-ctx.Done()
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if s.Shutdown(patience) != nil {
			_ = s.Close()
		}
	})
	var err error
	if s.TLSConfig != nil {
		err = s.ServeTLS(l, "", "")
	} else {
		err = s.Serve(l)
	}
	stop()
	running.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
