package node_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// These tests use sockets of the machine, and so its clock: a bubble cannot hold them.

// certified returns a certificate for 127.0.0.1, and the authorities that vouch for it.
func certified(t *testing.T) ([]tls.Certificate, *x509.CertPool) {
	s := httptest.NewTLSServer(nil)
	t.Cleanup(s.Close)
	authorities := x509.NewCertPool()
	authorities.AddCert(s.Certificate())
	return s.TLS.Certificates, authorities
}

func TestDialSpeaksTLSToWhomItTrusts(t *testing.T) {
	certificates, authorities := certified(t)
	s := miniredis.NewMiniRedis()
	testkit.Must(t, s.StartTLS(&tls.Config{Certificates: certificates}), "StartTLS")
	t.Cleanup(s.Close)
	s.RequireAuth("s3cret")
	config := &tls.Config{RootCAs: authorities}
	mustAcquire(t, dial(t, "rediss://:s3cret@"+s.Addr(), node.WithTLSConfig(config), node.WithTimeout(never)), alice, 1)
	if config.ServerName != "" {
		t.Error("the caller's configuration was changed")
	}
	for name, opts := range map[string][]node.Option{
		"an authority nobody knows": nil,
		"another server's name":     {node.WithTLSConfig(&tls.Config{RootCAs: authorities, ServerName: "another.org"})},
	} {
		_, err := transport.Of(dial(t, "rediss://:s3cret@"+s.Addr(), append(opts, node.WithTimeout(never))...)).Inspect(t.Context(), "x")
		if e, ok := errors.AsType[*quorumlock.NodeError](err); !ok || e.Node != s.Addr() {
			t.Errorf("%s: error %v, want one of %s", name, err, s.Addr())
		}
		if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok {
			t.Errorf("%s: error %v, want one of the certificate", name, err)
		}
	}
}

// A server takes the first bytes of TLS for the beginning of a command, and waits for the rest.
func TestAPortWithoutTLSIsNamed(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err, "Listen")
	t.Cleanup(func() { _ = silent.Close() })
	s := miniredis.NewMiniRedis()
	testkit.Must(t, s.Start(), "Start")
	t.Cleanup(s.Close)
	for name, addr := range map[string]string{"silent": silent.Addr().String(), "answers with an error": s.Addr()} {
		for _, opts := range [][]node.Option{nil, {node.WithTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12})}} {
			_, err := dial(t, "rediss://"+addr, append(opts, node.WithTimeout(300*time.Millisecond))...).Mutex("x").TryLock(t.Context())
			says(t, name, err, "if the port is without TLS, use a redis:// URL")
		}
	}
}

func TestDialReachesAUnixSocket(t *testing.T) {
	s := miniredis.NewMiniRedis()
	t.Cleanup(s.Close)
	s.RequireUserAuth("billing", "s3cret")
	socket := filepath.Join(t.TempDir(), "redis.sock")
	serveConns(t, listenAt(t, "unix", socket), func(client net.Conn) {
		server, err := s.Dial()
		if err != nil {
			t.Error(err)
			return
		}
		var replies sync.WaitGroup
		replies.Go(func() { _, _ = io.Copy(client, server) })
		_, _ = io.Copy(server, client)
		_ = server.Close()
		replies.Wait()
	})
	n := dial(t, "unix://billing:s3cret@"+socket+"?db=2", nil, node.WithTimeout(never)) // a nil option does nothing
	mustAcquire(t, n, alice, 1)
	testkit.Equal(t, s.DB(2).HGet("x", string(alice)), "1", "entries in database 2")
}
