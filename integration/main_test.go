package integration

import (
	"context"
	"errors"
	"flag"
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

	"github.com/quorumlock/quorumlock/integration/redisimage"
	"github.com/quorumlock/quorumlock/internal/require"
)

// five are the nodes that most tests share. A test that harms one heals it again.
var five []*server

// role is the variable that has a process of this program do something else than run tests: the name of the role,
// and its argument.
const role = "QUORUMLOCK_TEST_ROLE"

var roles = map[string]func(argument string) error{"hold": hold, "lead": lead, "reap": reap, "abandon": abandon}

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

// noServers is why no container can be started; empty if they can.
var noServers string

// needServers skips a test where no container can be started.
func needServers(t *testing.T) {
	t.Helper()
	if noServers != "" {
		require.Skip(t, "QUORUMLOCK_REQUIRE_DOCKER", noServers)
	}
}

// run starts the five nodes, runs the tests and looks for goroutines that are left.
func run(m *testing.M) int {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set("6") // these tests wait for containers most of the time
	}
	redis.SetLogger(silent{}) // go-redis logs every failed dial, and the tests make many
	if err := connect(); err != nil {
		noServers = oneLine("no Docker daemon: ", err)
		return m.Run()
	}
	defer docker.Close() //nolint:errcheck // the process ends

	var err error
	named := os.Getenv("QUORUMLOCK_REDIS_IMAGE")
	if image, err = chooseImage(named); err != nil && named != "" {
		fmt.Fprintln(os.Stderr, "QUORUMLOCK_REDIS_IMAGE:", err)
		return 1
	} else if err != nil {
		noServers = oneLine("no Redis image: ", err)
		return m.Run()
	}
	stopReaper, err := startReaper()
	if err != nil {
		fmt.Fprintln(os.Stderr, "the process that removes what is left could not be started:", err)
		return 1
	}
	if five, err = startAll(5); err != nil {
		fmt.Fprintln(os.Stderr, "the Redis containers could not be started:", errors.Join(err, stopReaper()))
		return 1
	}
	before := goleak.IgnoreCurrent()
	code := m.Run()
	for _, s := range five {
		err = errors.Join(err, s.end())
	}
	err = errors.Join(err, stopReaper())
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

// connect finds the Docker daemon where Docker's own tools would look for it, or says why there is none.
func connect() (err error) {
	tclog.SetDefault(tclog.NewNoopLogger())
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
