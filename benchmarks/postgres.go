package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// startPostgres starts one server. An advisory lock is never written to a disk, so nothing is
// synced.
func startPostgres(ctx context.Context, dir string) (*service, error) {
	initdb, program, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	own := filepath.Join(dir, "postgres")
	if err := os.Mkdir(own, 0o700); err != nil {
		return nil, err
	}
	as, err := unprivileged(dir, own)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(own, "data")
	prepare := exec.CommandContext(ctx, initdb, "-D", data, "-U", "bench", "-A", "trust", "--no-sync", "--locale", "C", "--encoding", "UTF8")
	prepare.SysProcAttr, prepare.Dir = as, own
	if out, err := prepare.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	s := &service{addrs: []string{local(ports[0])}}
	cmd := exec.Command(program, "-D", data, "-p", strconv.Itoa(ports[0]), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "max_connections=700")
	cmd.SysProcAttr, cmd.Dir = as, own
	if err := s.start(cmd, filepath.Join(own, "log")); err != nil {
		return nil, err
	}
	err = await(ctx, "postgres", func(ctx context.Context) error { return trial(ctx, openPostgres, s.addrs) })
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// postgresPrograms finds the newest ones: Debian keeps them out of the PATH.
func postgresPrograms() (initdb, postgres string, err error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		if postgres, err := exec.LookPath("postgres"); err == nil {
			return initdb, postgres, nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(found) == 0 {
		return "", "", &notInstalled{"postgres", "postgresql"}
	}
	slices.Sort(found)
	newest := found[len(found)-1]
	return filepath.Join(filepath.Dir(newest), "initdb"), newest, nil
}

// unprivileged gives a directory to the user postgres if this program runs as root, which
// PostgreSQL refuses.
func unprivileged(parent, dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(parent, 0o711); err != nil { // it has to pass through
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, os.Chown(dir, uid, gid)
}

// postgresClient is a pool that has a connection for every caller: an advisory lock belongs to one.
type postgresClient struct{ pool *pgxpool.Pool }

func openPostgres(addrs []string, callers int) (client, error) {
	cfg, err := pgxpool.ParseConfig("postgres://bench@" + addrs[0] + "/postgres?sslmode=disable")
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(callers)
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	return &postgresClient{pool}, nil
}

func (c *postgresClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if err := advisory(ctx, conn.Conn(), "lock", name); err != nil {
		conn.Release()
		return nil, err
	}
	return func(ctx context.Context) error {
		defer conn.Release()
		return advisory(ctx, conn.Conn(), "unlock", name)
	}, nil
}

func advisory(ctx context.Context, conn *pgx.Conn, verb, name string) error {
	_, err := conn.Exec(ctx, "select pg_advisory_"+verb+"(hashtextextended($1, 0))", name)
	return err
}

func (c *postgresClient) close() error {
	c.pool.Close()
	return nil
}
