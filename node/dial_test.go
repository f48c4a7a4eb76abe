package node_test

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/node"
)

func TestDialReadsTheURL(t *testing.T) {
	for _, tt := range []struct {
		url, name     string
		network, addr string
		user, pass    string
		db            int
		tls           bool
	}{
		{"redis://h:7000", "h:7000", "tcp", "h:7000", "", "", 0, false},
		{"redis://h", "h:6379", "tcp", "h:6379", "", "", 0, false},
		{"redis://h/", "h:6379", "tcp", "h:6379", "", "", 0, false},
		{"redis://h/3", "h:6379/3", "tcp", "h:6379", "", "", 3, false},
		{"redis://h?db=4", "h:6379/4", "tcp", "h:6379", "", "", 4, false},
		{"redis://[::1]:7000/1", "[::1]:7000/1", "tcp", "[::1]:7000", "", "", 1, false},
		{"redis://:pw@h", "h:6379", "tcp", "h:6379", "", "pw", 0, false},
		{"redis://u:p%2Fw%40%23%3F%3A@h:7000/2", "h:7000/2", "tcp", "h:7000", "u", "p/w@#?:", 2, false},
		{"redis://u@h", "h:6379", "tcp", "h:6379", "u", "", 0, false},
		{"rediss://u:pw@h", "h:6379", "tcp", "h:6379", "u", "pw", 0, true},
		{"unix:///run/redis.sock", "unix:/run/redis.sock", "unix", "/run/redis.sock", "", "", 0, false},
		{"unix://u:pw@/run/redis.sock?db=5", "unix:/run/redis.sock/5", "unix", "/run/redis.sock", "u", "pw", 5, false},
	} {
		t.Run(tt.url, func(t *testing.T) {
			n := dial(t, tt.url)
			o := n.Client().(*redis.Client).Options()
			testkit.Equal(t, n.String(), tt.name, "name")
			if o.Network != tt.network || o.Addr != tt.addr || o.Username != tt.user || o.Password != tt.pass || o.DB != tt.db || (o.TLSConfig != nil) != tt.tls {
				t.Errorf("options %s %s, %q:%q, db %d, TLS %v", o.Network, o.Addr, o.Username, o.Password, o.DB, o.TLSConfig != nil)
			}
			if !o.ContextTimeoutEnabled || o.MaxRetries > 0 {
				t.Errorf("deadlines are heeded: %v, retries: %d", o.ContextTimeoutEnabled, o.MaxRetries)
			}
		})
	}
}

func TestDialKeepsTheParametersOfTheURL(t *testing.T) {
	o := dial(t, "redis://h?pool_size=3&read_timeout=250ms&client_name=billing&protocol=2").Client().(*redis.Client).Options()
	if o.PoolSize != 3 || o.ReadTimeout != 250*time.Millisecond || o.ClientName != "billing" || o.Protocol != 2 {
		t.Errorf("pool %d, read timeout %v, name %q, protocol %d", o.PoolSize, o.ReadTimeout, o.ClientName, o.Protocol)
	}
}

// badURLs are URLs that Dial cannot use. Every password in them has "s3cret" in it.
var badURLs = map[string]string{
	"no scheme, password":           "user:s3cret@h:6379",
	"no scheme, only a password":    "s3cret",
	"no scheme, but slashes":        "//user:s3cret@h:6379",
	"a space before":                " redis://user:s3cret@h",
	"a line feed behind":            "redis://user:s3cret@h\n",
	"nothing but spaces":            "  ",
	"no scheme, only password":      ":s3cret@h:6379",
	"another scheme":                "http://user:s3cret@h",
	"upper case is no excuse":       "REDISX://user:s3cret@h",
	"no host":                       "redis://",
	"no host, password":             "redis://:s3cret@",
	"no host, port":                 "redis://:6379",
	"bad port":                      "redis://user:s3cret@h:port",
	"database is a word":            "redis://user:s3cret@h/db",
	"two databases":                 "redis://user:s3cret@h/0/1",
	"bad database parameter":        "redis://user:s3cret@h?db=x",
	"unknown parameter":             "redis://user:s3cret@h?colour=red",
	"bad parameter":                 "redis://user:s3cret@h?pool_size=many",
	"bad duration":                  "redis://user:s3cret@h?read_timeout=long",
	"password parameter":            "redis://h?password=s3cret",
	"control character":             "redis://user:s3cret\x7f@h",
	"bad percent encoding":          "redis://user:s3cret%zz@h",
	"space in the host":             "redis://user:s3cret@h h",
	"slash in the password":         "redis://user:s3cret/x@h",
	"slash first":                   "redis://user:/s3cret@h",
	"question mark in the password": "redis://user:s3cret?x@h",
	"question mark first":           "redis://user:?s3cret@h",
	"hash in the password":          "redis://user:s3cret#x@h",
	"hash first":                    "redis://user:#s3cret@h",
	"hash after digits":             "redis://user:12#s3cret@h",
	"unix without a path":           "unix://user:s3cret@",
	"unix, slash first":             "unix://user:/s3cret@/run/redis.sock",
	"unix, slash after digits":      "unix://user:12/s3cret@/run/redis.sock",
	"unix with a host":              "unix://h/run/redis.sock",
}

func TestDialRefusesABadURLAndSaysWhatWouldDo(t *testing.T) {
	for name, url := range badURLs {
		t.Run(name, func(t *testing.T) {
			n, err := node.Dial(url)
			if err == nil {
				_ = n.Close()
				t.Fatalf("%q was accepted, as %s", url, n)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the password is in the error: %v", err)
			}
			says(t, url, err, "quorumlock: node.Dial: ", "redis://user:password@host:6379/0")
		})
	}
}

func TestDialNamesWhatIsWrong(t *testing.T) {
	for url, want := range map[string]string{
		"":                      "quorumlock: node.Dial: the URL is empty: use redis://host:6379",
		"10.0.0.1":              "the URL has no scheme: use redis://host:6379",
		"cache-1":               "the URL has no scheme: use redis://host:6379",
		"cache-1:6379":          "the URL has no scheme: use redis://cache-1:6379",
		"10.0.0.1:6379/2":       "the URL has no scheme: use redis://10.0.0.1:6379/2",
		"[::1]:6379":            "the URL has no scheme: use redis://[::1]:6379",
		"h:6379?db=1":           "the URL has no scheme: use redis://host:6379",
		"redis://h\r\n":         "begins or ends with white space: remove it",
		"http://h":              `"http" is not a scheme`,
		"redis://h?colour=x":    "the URL of h cannot be used",
		"redis://a,redis://b":   "is several URLs",
		"redis://a redis://b":   "is several URLs",
		"redis://a:6379,b:6379": "names several hosts",
		"redis://a,b":           "names several hosts",
		"redis://a;b":           "names several hosts",
		"redis://h:99999":       "port 99999: use 1 to 65535",
		"redis://h:0":           "port 0: use 1 to 65535",
		"redis:///0":            "names no host",
		"redis://u:a@b@h":       "an @ that does not end the password",
		"redis://u:12?a=b@h":    "an @ that does not end the password",
		"unix://run/r.sock":     "a host before the path of the socket",
		"redis://h:one":         "cannot be read",
	} {
		says(t, url, testkit.Err(node.Dial(url)), want)
	}
}

func TestABadNodeOptionIsNamedAlongWithWhatWouldDo(t *testing.T) {
	dialer := func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
	client := redis.NewClient(&redis.Options{Addr: "h:6379"})
	defer client.Close() //nolint:errcheck // it was never used
	dialled := func(url string, o node.Option) error { return testkit.Err(node.Dial(url, o)) }
	over := func(c redis.UniversalClient, opts ...node.Option) error {
		return testkit.Err(node.New(c, opts...))
	}
	for _, tt := range []struct {
		err  error
		want []string
	}{
		{dialled("redis://h", node.WithTimeout(0)), []string{"node h:6379", "WithTimeout(0s)", "use a positive duration"}},
		{over(client, node.WithTimeout(-time.Second)), []string{"node h:6379", "WithTimeout(-1s)", "use a positive duration"}},
		{dialled("redis://h", node.WithName("")), []string{`WithName("")`, "leave the option out"}},
		{dialled("redis://h", node.WithTLSConfig(&tls.Config{})), []string{"node h:6379", "WithTLSConfig needs a rediss:// URL"}},
		{over(client, node.WithTLSConfig(&tls.Config{})), []string{"node h:6379", "WithTLSConfig", "the client's own options"}},
		{over(client, node.WithDialer(dialer)), []string{"node h:6379", "WithDialer", "the client's own options"}},
		{over(nil), []string{"node.New", "client is nil", "node.Dial"}},
		{over((*redis.Client)(nil)), []string{"node.New", "client is nil", "node.Dial"}},
		{over((*redis.ClusterClient)(nil)), []string{"node.New", "client is nil", "node.Dial"}},
	} {
		says(t, tt.want[0], tt.err, append(tt.want, "quorumlock: ")...)
	}
}

func TestNewNamesTheNodeAfterTheClient(t *testing.T) {
	for _, tt := range []struct {
		name   string
		client redis.UniversalClient
		opts   []node.Option
		want   string
	}{
		{"a client", redis.NewClient(&redis.Options{Addr: "h:7000", DB: 2, Password: "s3cret"}), nil, "h:7000/2"},
		{"a cluster", redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"a:1", "b:2"}, Password: "s3cret"}), nil, "cluster a:1,b:2"},
		{"a sentinel group", redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"s:1"}}), nil, "FailoverClient"},
		{"a name of its own", redis.NewClient(&redis.Options{Addr: "h:7000"}), []node.Option{node.WithName("cellar")}, "cellar"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, err := node.New(tt.client, tt.opts...)
			testkit.Must(t, err, "New")
			testkit.Equal(t, n.String(), tt.want, "name")
			testkit.Equal(t, n.Client(), tt.client, "Client")
			mustClose(t, n)
			testkit.OK(t, tt.client.Close(), "Close of the caller's client after that of the node")
		})
	}
}
