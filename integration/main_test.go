package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"go.uber.org/goleak"
)

// five are the nodes that most tests share. A test that harms one heals it again.
var five []*server

// docker talks to the daemon that has the containers.
var docker *testcontainers.DockerClient

func TestMain(m *testing.M) {
	if urls := os.Getenv(holderNodes); urls != "" { // a child of one of the tests
		if err := hold(strings.Fields(urls)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

// run starts the five nodes, runs the tests and looks for goroutines that are left.
func run(m *testing.M) int {
	redis.SetLogger(silent{}) // go-redis logs every failed dial, and the tests make many
	tclog.SetDefault(tclog.NewNoopLogger())
	if err := connect(); err != nil {
		return withoutDocker(err)
	}
	defer docker.Close() //nolint:errcheck // the process ends

	var err error
	if five, err = startAll(5); err != nil {
		fmt.Fprintln(os.Stderr, "the Redis containers could not be started:", err)
		return 1
	}
	before := goleak.IgnoreCurrent()
	code := m.Run()
	for _, s := range five {
		err = errors.Join(err, s.end())
	}
	// Connections to the daemon that are kept for the next request are no leak of ours.
	err = errors.Join(err, goleak.Find(before,
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop")))
	if err != nil {
		fmt.Fprintln(os.Stderr, "after the tests:", err)
		return 1
	}
	return code
}

// connect reaches the Docker daemon, or says why there is none.
func connect() (err error) {
	defer func() {
		if r := recover(); r != nil { // testcontainers panics where it finds no address to try
			err = fmt.Errorf("%v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if os.Getenv("DOCKER_HOST") != "" {
		// testcontainers would try other places when nobody answers at the one that was asked for.
		asked, err := client.New(client.FromEnv)
		if err != nil {
			return err
		}
		defer asked.Close() //nolint:errcheck // it is not used again
		if _, err := asked.Ping(ctx, client.PingOptions{}); err != nil {
			return err
		}
	}
	if docker, err = testcontainers.NewDockerClientWithOpts(ctx); err != nil {
		return err
	}
	_, err = docker.Ping(ctx, client.PingOptions{})
	return err
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
