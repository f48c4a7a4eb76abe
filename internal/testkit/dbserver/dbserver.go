//go:build unix

// Package dbserver starts database servers for tests: processes with empty data, removed at the
// end. It needs no driver. A server may need a moment before it answers: see [Server.Await].
package dbserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit/freeport"
)

// Server is a server process. It is not safe for concurrent use.
type Server struct {
	Addr string // host:port on this machine

	dir    string
	cmd    *exec.Cmd
	quit   os.Signal
	exited chan struct{}
}

// MissingError is the error for a server that is not installed. It names the package to install.
type MissingError struct{ Program, Package string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is not installed: on Debian, apt-get install %s", e.Program, e.Package)
}

// Postgres starts a PostgreSQL server with the user fence, no password, and the database postgres.
func Postgres() (*Server, error) {
	initdb, err := find("initdb", "postgresql", "/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return nil, err
	}
	program, err := find("postgres", "postgresql", "/usr/lib/postgresql/*/bin/postgres")
	if err != nil {
		return nil, err
	}
	s, err := prepare(syscall.SIGQUIT)
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(s.Addr)
	data := filepath.Join(s.dir, "data")
	return s.start(
		exec.Command(initdb, "-D", data, "-U", "fence", "-A", "trust", "--no-sync", "--locale", "C", "--encoding", "UTF8"),
		exec.Command(program, "-D", data, "-p", port, "-c", "listen_addresses="+host, "-c", "unix_socket_directories=",
			"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off"))
}

// MariaDB starts a MariaDB server with the user root, no password, and the database test.
func MariaDB() (*Server, error) {
	install, err := find("mariadb-install-db", "mariadb-server-core")
	if err != nil {
		return nil, err
	}
	program, err := find("mariadbd", "mariadb-server-core", "/usr/sbin/mariadbd")
	if err != nil {
		return nil, err
	}
	s, err := prepare(syscall.SIGKILL) // leaves nothing but its data
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(s.Addr)
	data := "--datadir=" + filepath.Join(s.dir, "data")
	return s.start(
		exec.Command(install, "--no-defaults", data, "--auth-root-authentication-method=normal", "--innodb-log-file-size=8M"),
		exec.Command(program, "--no-defaults", data, "--port="+port, "--bind-address="+host, "--socket="+filepath.Join(s.dir, "socket"),
			"--pid-file="+filepath.Join(s.dir, "pid"), "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0"))
}

// Redis starts a Redis server that keeps nothing on disk.
func Redis() (*Server, error) {
	program, err := find("redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	s, err := prepare(syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(s.Addr)
	return s.start(nil, exec.Command(program, "--bind", host, "--port", port, "--save", "", "--appendonly", "no"))
}

// find returns the path of a program: from PATH, or else the last match of a pattern.
func find(program, pkg string, patterns ...string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, p := range patterns {
		if found, err := filepath.Glob(p); err == nil && len(found) > 0 {
			slices.Sort(found)
			return found[len(found)-1], nil
		}
	}
	return "", &MissingError{program, pkg}
}

// prepare returns a server that is not started yet, with a port and a directory.
func prepare(quit os.Signal) (*Server, error) {
	addr, err := freeport.Addr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "quorumlock-server-")
	if err != nil {
		return nil, err
	}
	return &Server{Addr: addr, dir: dir, quit: quit, exited: make(chan struct{})}, nil
}

// start runs the command initial, if there is one, and then the server, which logs to a file.
func (s *Server) start(initial, server *exec.Cmd) (*Server, error) {
	as, err := unprivileged(s.dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	if initial != nil {
		initial.Dir, initial.SysProcAttr = s.dir, as
		if out, err := initial.CombinedOutput(); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w: %s", initial.Path, err, out), os.RemoveAll(s.dir))
		}
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	defer log.Close() //nolint:errcheck // the server has its own handle
	server.Dir, server.SysProcAttr, server.Stdout, server.Stderr = s.dir, as, log, log
	s.cmd = server
	if err := server.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	go func() {
		_ = server.Wait() // a signal ends it
		close(s.exited)
	}()
	return s, nil
}

// unprivileged gives dir to the user nobody if this process runs as root, as which database servers
// refuse to run. It returns the attributes for a process of that user.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	attr := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return attr, os.Chown(dir, int(uid), int(gid))
}

// Log returns the server's log, for an error.
func (s *Server) Log() string {
	b, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(b)
}

// Await calls answers until it returns nil, for a minute at most, or until the server has ended.
func (s *Server) Await(answers func() error) error {
	deadline := time.After(time.Minute)
	for {
		err := answers()
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("%s has ended: %w\n%s", s.cmd.Path, err, s.Log())
		case <-deadline:
			return fmt.Errorf("%s does not answer: %w\n%s", s.cmd.Path, err, s.Log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Signal sends a signal to the server, such as SIGSTOP.
func (s *Server) Signal(signal os.Signal) error { return s.cmd.Process.Signal(signal) }

// Close ends the server and removes its data.
func (s *Server) Close() error {
	_ = s.Signal(s.quit)
	select {
	case <-s.exited:
	case <-time.After(10 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
	return os.RemoveAll(s.dir)
}
