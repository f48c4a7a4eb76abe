package main

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

// A long run outlives the rotation of its passwords and certificates: each connection reads the
// files again. While they are gone, the last ones count.
func TestEachConnectionReadsTheFilesAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	ca, key := testkit.Certificate(t, dir, "ca", nil, nil)
	for _, name := range []string{"server", "one", "second"} {
		testkit.Certificate(t, dir, name, ca, key)
	}
	pair, err := tls.LoadX509KeyPair(file("server.pem"), file("server.key"))
	testkit.Must(t, err, "the certificate of the server")
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err, "listen")
	server := tls.NewListener(plain, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})
	defer server.Close() //nolint:errcheck // nothing depends on it
	came := make(chan string, 100)
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			hello := make([]byte, 512)
			n, _ := conn.Read(hello)
			if m := regexp.MustCompile(`(?is)auth\r\n\$\d+\r\n(\w+)\r\n\$\d+\r\n(\w+)`).FindSubmatch(hello[:n]); m != nil {
				came <- conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String() + " " + string(m[1]) + " " + string(m[2])
			}
			_ = conn.Close()
		}
	}()
	write := func(password string) {
		testkit.Must(t, os.WriteFile(file("nodes"), []byte("rediss://me:"+password+"@"+plain.Addr().String()+"\n"), 0o600), "the nodes")
	}
	write("first")
	nodes := file("nodes")
	cluster, err := (&connection{sources: sources{NodesFile: &nodes}, TLSCA: file("ca.pem"), TLSCert: file("one.pem"), TLSKey: file("one.key")}).dial("test")
	testkit.Must(t, err, "dial")
	defer cluster.Close()
	// An earlier connection may still come, and one may fail between the two renames.
	connects := func(want string) {
		t.Helper()
		last, end := "", time.After(20*time.Second)
		for last != want {
			_, _ = cluster.Mutex("x").TryLock(t.Context())
			select {
			case last = <-came:
			case <-time.After(50 * time.Millisecond):
			case <-end:
				t.Fatalf("the last connection came with certificate, user and password %q, want %q", last, want)
			}
		}
	}
	connects("3 me first")
	write("second")
	for _, kind := range []string{".pem", ".key"} {
		testkit.Must(t, os.Rename(file("second"+kind), file("one"+kind)), "rename")
	}
	connects("6 me second")
	for _, name := range []string{"nodes", "one.pem"} {
		testkit.Must(t, os.Remove(file(name)), "remove")
	}
	connects("6 me second")
}
