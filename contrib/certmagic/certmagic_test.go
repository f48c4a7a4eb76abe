package certmagiclock_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/quorumlock/quorumlock"
	certmagiclock "github.com/quorumlock/quorumlock/contrib/certmagic"
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
	if err != nil {
		t.Fatal(err)
	}
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
					if storage, err = certmagiclock.New(files, mutexes(nodes.NewClient())); err != nil {
						t.Fatal(err)
					}
				}
				for i := range names {
					wg.Go(func() {
						if err := order(t, storage, from, fmt.Sprintf("%d.example.com", i)); err != nil {
							t.Error(err)
						}
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
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Two storages are two processes.
func TestOneProcessHasTheLockOfAName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		nodes := nodetest.Start(t, 3)
		a, b := newStorage(t, mutexes(nodes.NewClient())), newStorage(t, mutexes(nodes.NewClient()))
		ctx, cancel := context.WithCancel(t.Context())
		if err := a.Lock(ctx, "x"); err != nil {
			t.Fatal(err)
		}
		cancel()
		time.Sleep(time.Minute) // it is renewed, though ctx is done
		if ok, err := b.TryLock(t.Context(), "x"); ok || err != nil {
			t.Errorf("TryLock of a lock that is held: %v, %v, want false and no error", ok, err)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Lock(soon, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock with a deadline: %v, want DeadlineExceeded", err)
		}
		if ok, err := b.TryLock(t.Context(), "y"); !ok || err != nil {
			t.Errorf("TryLock of another name: %v, %v", ok, err)
		}
		if err := a.Unlock(ctx, "x"); err != nil {
			t.Errorf("Unlock with a done context: %v", err)
		}
		if err := b.Lock(t.Context(), "x"); err != nil {
			t.Errorf("Lock after Unlock: %v", err)
		}
		if err := a.Unlock(t.Context(), "x"); !errors.Is(err, quorumlock.ErrNotHeld) {
			t.Errorf("Unlock of somebody else's lock: %v, want ErrNotHeld", err)
		}
		nodes.Kill()
		if ok, err := a.TryLock(t.Context(), "z"); ok || err == nil {
			t.Errorf("TryLock while the nodes are down: %v, %v, want an error", ok, err)
		}
	})
}

// The same in one process: the caller that lost the lock unlocks while another is at work.
func TestTheUnlockOfALostLockDoesNotFreeTheNext(t *testing.T) {
	lock := locktest.New("x")
	s := newStorage(t, func(string) quorumlock.Locker { return lock })
	if err := s.Lock(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	lock.Lose()
	if err := s.Lock(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if err := s.Unlock(t.Context(), "x"); err != nil { // of the first
		t.Error(err)
	}
	if ok, err := s.TryLock(t.Context(), "x"); ok || err != nil {
		t.Errorf("TryLock: %v, %v, want false: the second still has the lock", ok, err)
	}
	if err := s.Unlock(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	if ok, err := s.TryLock(t.Context(), "x"); !ok || err != nil {
		t.Errorf("TryLock when both have unlocked: %v, %v, want true", ok, err)
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	none := func(string) quorumlock.Locker { return nil }
	_, noStorage := certmagiclock.New(nil, none)
	_, noFunc := certmagiclock.New(&certmagic.FileStorage{}, nil)
	_, nilStorage := certmagiclock.New((*certmagic.FileStorage)(nil), none)
	typed := func(string) quorumlock.Locker { return (*locktest.Locker)(nil) }
	_, noTry := newStorage(t, none).TryLock(t.Context(), "x")
	for want, err := range map[string]error{
		"the storage is nil": noStorage, "New: the storage is nil": nilStorage,
		`returned nil for the name "y"`: newStorage(t, typed).Lock(t.Context(), "y"),
		"the function is nil":           noFunc,
		`returned nil for the name "x"`: newStorage(t, none).Lock(t.Context(), "x"), `nil for the name "x": return a lock`: noTry,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}
