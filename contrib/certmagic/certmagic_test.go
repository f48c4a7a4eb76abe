package certmagiclock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/quorumlock/quorumlock"
	certmagiclock "github.com/quorumlock/quorumlock/contrib/certmagic"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
	"github.com/quorumlock/quorumlock/redlock"
)

// issuer signs every request, slowly, and counts.
type issuer struct {
	key    *ecdsa.PrivateKey
	issued atomic.Int64
}

func newIssuer(t testing.TB) *issuer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(t, err, "GenerateKey")
	return &issuer{key: key}
}

func (i *issuer) IssuerKey() string { return "test" }

func (i *issuer) Issue(_ context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	time.Sleep(20 * time.Millisecond)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(i.issued.Add(1)), DNSNames: csr.DNSNames,
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, csr.PublicKey, i.key)
	if err != nil {
		return nil, err
	}
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// order makes CertMagic order a certificate, as a process with that storage does.
func order(t testing.TB, storage certmagic.Storage, from certmagic.Issuer, name string) error {
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	defer cache.Stop()
	config = certmagic.New(cache, certmagic.Config{Storage: storage, Issuers: []certmagic.Issuer{from}, Logger: zap.NewNop()})
	return config.ObtainCertSync(t.Context(), name)
}

// connect replaces redlock.Dial(urls): three servers in the process.
func connect() (client *redlock.Client, stop func()) {
	client, _, stop = testkit.Connect(3)
	return client, stop
}

func mutexes(client *redlock.Client) func(string) quorumlock.Locker {
	return client.Lockers("certmagic:")
}

// without is a storage without mutual exclusion.
type without struct{ certmagic.Storage }

func (without) Lock(context.Context, string) error   { return nil }
func (without) Unlock(context.Context, string) error { return nil }

// Four processes want the same five certificates at once, and CertMagic orders each once.
func TestAFleetOrdersEachCertificateOnce(t *testing.T) {
	const processes, names = 4, 5
	for name, locked := range map[string]bool{"locked": true, "not locked": false} {
		t.Run(name, func(t *testing.T) {
			nodes, from := nodetest.Start(t, 3), newIssuer(t)
			files := without{&certmagic.FileStorage{Path: t.TempDir()}} // shared by all processes
			var wg sync.WaitGroup
			for range processes {
				var storage certmagic.Storage = files
				if locked {
					var err error
					storage, err = certmagiclock.New(files, mutexes(nodes.NewClient()))
					testkit.Must(t, err, "New")
				}
				for i := range names {
					wg.Go(func() {
						testkit.OK(t, order(t, storage, from, fmt.Sprintf("%d.example.com", i)), "order")
					})
				}
			}
			wg.Wait()
			issued := from.issued.Load()
			t.Logf("%d certificates issued for %d names", issued, names)
			if locked && issued != names {
				t.Errorf("%d certificates were issued for %d names, want one each", issued, names)
			}
			if !locked && issued == names {
				t.Error("each certificate was ordered once without locks: this test cannot see what they are for")
			}
		})
	}
}

func newStorage(t *testing.T, lock func(string) quorumlock.Locker) *certmagiclock.Storage {
	t.Helper()
	s, err := certmagiclock.New(&certmagic.FileStorage{Path: t.TempDir()}, lock)
	testkit.Must(t, err, "New")
	return s
}

// Two storages are two processes.
func TestOneProcessHasTheLockOfAName(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		nodes := nodetest.Start(t, 3)
		a, b := newStorage(t, mutexes(nodes.NewClient())), newStorage(t, mutexes(nodes.NewClient()))
		ctx, cancel := context.WithCancel(t.Context())
		testkit.Must(t, a.Lock(ctx, "x"), "Lock")
		cancel()
		time.Sleep(time.Minute) // it is renewed, though ctx is done
		try(t, b, "x", false)
		testkit.Is(t, b.Lock(testkit.Within(t, time.Second), "x"), context.DeadlineExceeded, "Lock")
		try(t, b, "y", true)
		testkit.OK(t, a.Unlock(ctx, "x"), "Unlock with a done context")
		testkit.OK(t, b.Lock(t.Context(), "x"), "Lock after Unlock")
		testkit.Is(t, a.Unlock(t.Context(), "x"), quorumlock.ErrNotHeld, "Unlock of somebody else's lock")
		nodes.Kill()
		if ok, err := a.TryLock(t.Context(), "z"); ok || err == nil {
			t.Errorf("TryLock while the nodes are down: %v, %v, want an error", ok, err)
		}
	})
}

// try calls TryLock, which returns want and no error.
func try(t *testing.T, s *certmagiclock.Storage, name string, want bool) {
	t.Helper()
	if ok, err := s.TryLock(t.Context(), name); ok != want || err != nil {
		t.Errorf("TryLock of %q: %v, %v, want %v and no error", name, ok, err, want)
	}
}

// The same in one process: the caller that lost the lock unlocks while another is at work.
func TestTheUnlockOfALostLockDoesNotFreeTheNext(t *testing.T) {
	lock := locktest.New("x")
	s := newStorage(t, func(string) quorumlock.Locker { return lock })
	testkit.Must(t, s.Lock(t.Context(), "x"), "Lock")
	lock.Lose()
	testkit.Must(t, s.Lock(t.Context(), "x"), "Lock")
	testkit.OK(t, s.Unlock(t.Context(), "x"), "Unlock") // of the first
	try(t, s, "x", false)                               // the second still has the lock
	testkit.OK(t, s.Unlock(t.Context(), "x"), "Unlock")
	try(t, s, "x", true)
}

func TestBadArgumentsAreRefused(t *testing.T) {
	none := func(string) quorumlock.Locker { return nil }
	typed := func(string) quorumlock.Locker { return (*locktest.Locker)(nil) }
	for want, err := range map[string]error{
		"the storage is nil":                  testkit.Err(certmagiclock.New(nil, none)),
		"New: the storage is nil":             testkit.Err(certmagiclock.New((*certmagic.FileStorage)(nil), none)),
		"the function is nil":                 testkit.Err(certmagiclock.New(&certmagic.FileStorage{}, nil)),
		`returned nil for the name "x"`:       newStorage(t, none).Lock(t.Context(), "x"),
		`returned nil for the name "y"`:       newStorage(t, typed).Lock(t.Context(), "y"),
		`nil for the name "x": return a lock`: testkit.Err(newStorage(t, none).TryLock(t.Context(), "x")),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}
