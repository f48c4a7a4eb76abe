package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/integration/redisimage"
	"github.com/quorumlock/quorumlock/internal/testkit/require"
)

// five are the nodes that most tests share. A test that harms one heals it again.
var five []*server

// role is the variable that gives a process of this program another role than to run tests: the
// name of the role, and its argument.
const role = "QUORUMLOCK_TEST_ROLE"

var roles = map[string]func(argument string) error{"lead": lead, "reap": reap, "abandon": abandon}

func TestMain(m *testing.M) {
	name, argument, _ := strings.Cut(os.Getenv(role), " ")
	if name == "" {
		os.Exit(run(m))
	}
	if err := roles[name](argument); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// servers starts the five nodes. It returns the reason if no container can be started.
var servers = sync.OnceValues(func() (missing string, err error) {
	if err := connect(); err != nil {
		return oneLine("no Docker daemon: ", err), nil
	}
	named := os.Getenv("QUORUMLOCK_REDIS_IMAGE")
	if image, err = chooseImage(named); err != nil && named != "" {
		return "", fmt.Errorf("QUORUMLOCK_REDIS_IMAGE: %w", err)
	} else if err != nil {
		return oneLine("no Redis image: ", err), nil
	}
	if stopReaper, err = startReaper(); err != nil {
		return "", fmt.Errorf("the process that removes leftover containers: %w", err)
	}
	if five, err = startAll(5); err != nil {
		return "", err
	}
	return "", askVersion(context.Background(), five[0].admin)
})

// stopReaper stops the process that removes leftover containers; nil if it was not started.
var stopReaper func() error

// needServers starts the servers, and skips a test if no container can be started. It is called in
// tests, not in TestMain: so the go command knows the environment variables that count, and runs
// the tests again if one has changed.
func needServers(t *testing.T) {
	t.Helper()
	missing, err := servers()
	if err != nil {
		t.Fatal(err)
	}
	if missing != "" {
		require.Skip(t, "QUORUMLOCK_REQUIRE_DOCKER", missing)
	}
}

// run runs the tests and looks for goroutines that are left.
func run(m *testing.M) int {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set("6") // these tests wait for containers most of the time
	}
	redis.SetLogger(silent{}) // go-redis logs every failed dial, and the tests make many
	before := goleak.IgnoreCurrent()
	code := m.Run()
	var err error
	for _, s := range five {
		if s != nil {
			err = errors.Join(err, s.end())
		}
	}
	if stopReaper != nil {
		err = errors.Join(err, stopReaper())
	}
	if docker != nil {
		err = errors.Join(err, docker.Close())
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

func oneLine(what string, err error) string {
	return what + strings.Join(strings.Fields(err.Error()), " ")
}

// chooseImage returns the image of all servers.
func chooseImage(named string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return redisimage.Chooser{
		Docker: docker,
		Named:  named,
		Public: redisimage.Public,
		Say:    func(line string) { fmt.Println("quorumlock/integration: " + line) },
	}.Choose(ctx)
}

// connect finds the Docker daemon like Docker's own tools, or returns the reason why there is none.
func connect() (err error) {
	tclog.SetDefault(tclog.NewNoopLogger())
	defer func() {
		// testcontainers panics if it finds no address to try.
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if os.Getenv("DOCKER_HOST") != "" {
		// testcontainers would try other addresses if the given one does not answer.
		asked, err := client.New(client.FromEnv)
		if err != nil {
			return err
		}
		defer asked.Close() //nolint:errcheck // it is not used again
		if _, err := asked.Ping(ctx, client.PingOptions{}); err != nil {
			return err
		}
	}
	found, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return err
	}
	docker = found.Client
	_, err = docker.Ping(ctx, client.PingOptions{})
	return err
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
