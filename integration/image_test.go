package integration

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/integration/redisimage"
)

// Without a registry or settings, servers run on an image built from this machine's programs.
func TestImageBuiltHereServes(t *testing.T) {
	needServers(t)
	var said []string
	built, err := redisimage.Chooser{
		Docker: docker, Public: "localhost:1/redis:8", // no registry listens there
		Say: func(line string) { said = append(said, line) },
	}.Choose(patiently(t))
	if _, missing := exec.LookPath("redis-server"); missing != nil {
		if err == nil || !strings.Contains(err.Error(), "redis-server") {
			t.Errorf("%v, want it to say that redis-server is missing", err)
		}
		return
	}
	must(t, err)
	if last := said[len(said)-1]; !strings.Contains(last, "localhost:1/redis:8 cannot be pulled") || !strings.Contains(last, built) {
		t.Errorf("said %q, want it to name the image that cannot be pulled, and %s", said, built)
	}
	s := start(t, &redis.Options{}, nil, withImage(built), withCommand())
	s.exec(t, "sh", "-c", "redis-cli ping | grep -q PONG") // the health check of docker-compose.yml
	must(t, s.admin.ConfigSet(t.Context(), "appendonly", "yes").Err())
	s.exec(t, "sh", "-c", "ls /data/appendonly*") // a directory since Redis 7
}
