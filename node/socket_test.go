package node_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// These tests use sockets of the machine, and so its clock: a bubble cannot hold them.

// certificate is one for localhost that is signed by itself, and the authorities that it takes.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		DNSNames:     []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestDialSpeaksTLSToWhomItTrusts(t *testing.T) {
	cert, authorities := certificate(t)
	s := miniredis.NewMiniRedis()
	if err := s.StartTLS(&tls.Config{Certificates: []tls.Certificate{cert}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.RequireAuth("s3cret")
	at := "localhost:" + s.Port()

	t.Run("trusted", func(t *testing.T) {
		config := &tls.Config{RootCAs: authorities}
		n := dial(t, "rediss://:s3cret@"+at, node.WithTLSConfig(config), node.WithTimeout(never))
		mustAcquire(t, n, alice, 1)
		if config.ServerName != "" {
			t.Error("the caller's configuration was changed")
		}
	})
	for name, opts := range map[string][]node.Option{
		"an authority nobody knows": nil,
		"another server's name":     {node.WithTLSConfig(&tls.Config{RootCAs: authorities, ServerName: "example.com"})},
	} {
		t.Run(name, func(t *testing.T) {
			n := dial(t, "rediss://:s3cret@"+at, append(opts, node.WithTimeout(never))...)
			_, err := transport.Of(n).Inspect(t.Context(), "x")
			if e, ok := errors.AsType[*quorumlock.NodeError](err); !ok || e.Node != at {
				t.Errorf("error %v, want one of %s", err, at)
			}
			if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok {
				t.Errorf("error %v, want one of the certificate", err)
			}
		})
	}
}

func TestDialReachesAUnixSocket(t *testing.T) {
	s := miniredis.NewMiniRedis()
	t.Cleanup(s.Close)
	s.RequireUserAuth("billing", "s3cret")
	socket := filepath.Join(t.TempDir(), "redis.sock")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := s.Dial()
			if err != nil {
				t.Error(err)
				return
			}
			serving.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
			serving.Go(func() { _, _ = io.Copy(client, server); _ = client.Close() })
		}
	})
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})

	n := dial(t, "unix://billing:s3cret@"+socket+"?db=2", node.WithTimeout(never))
	mustAcquire(t, n, alice, 1)
	if got := s.DB(2).HGet("x", string(alice)); got != "1" {
		t.Errorf("in database 2 the hold count is %q", got)
	}
}
