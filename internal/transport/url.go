package transport

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/errs"
)

// parse returns the options of a URL. No error repeats a possible password.
func parse(rawURL string) (*redis.Options, error) {
	const want = "use redis://user:password@host:6379/0, rediss:// or unix:///path, and percent-encode special characters"
	if strings.TrimSpace(rawURL) != rawURL {
		return nil, errs.Misuse("quorumlock: node.Dial: the URL begins or ends with white space: remove it, and " + want)
	}
	if err := checkScheme(rawURL); err != nil {
		return nil, err
	}
	if strings.Count(rawURL, "://") > 1 {
		return nil, errs.Misuse("quorumlock: node.Dial: the URL is several URLs: give each of them alone, " + want)
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errs.Misuse("quorumlock: node.Dial: the URL cannot be read: " + want)
	}
	switch u.Scheme {
	case "redis", "rediss", "unix":
	default:
		return nil, errs.Misusef("quorumlock: node.Dial: %q is not a scheme for a node: %s", u.Scheme, want)
	}
	if (u.User != nil) != strings.Contains(rawURL, "@") || strings.Count(rawURL, "@") > 1 {
		// A password with a / or @ ends early: its rest would be taken for a host or path, and
		// shown.
		return nil, errs.Misuse("quorumlock: node.Dial: the URL has an @ that does not end the password: " + want)
	}
	if u.Scheme == "unix" && u.Host != "" {
		return nil, errs.Misuse("quorumlock: node.Dial: the URL has a host before the path of the socket: " + want)
	}
	o, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, errs.Misusef("quorumlock: node.Dial: the URL of %s cannot be used: check its port, database and parameters: %s", u.Hostname(), want)
	}
	if u.Scheme != "unix" && u.Hostname() == "" {
		return nil, errs.Misuse("quorumlock: node.Dial: the URL names no host: " + want)
	}
	if strings.ContainsAny(u.Host, ",; ") {
		return nil, errs.Misuse("quorumlock: node.Dial: the URL names several hosts: make a node of each of them, and " + want)
	}
	if port, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || port < 1 || port > 65535) {
		return nil, errs.Misusef("quorumlock: node.Dial: the URL of %s has the port %.20s: use 1 to 65535", u.Hostname(), u.Port())
	}
	return o, nil
}

// hostAndPort matches an address that may be taken for a URL.
var hostAndPort = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}(/[0-9]+)?$`)

// checkScheme returns an error with the scheme to add to an address without one. url.Parse would
// take its host for the scheme.
func checkScheme(rawURL string) error {
	switch {
	case rawURL == "":
		return errs.Misuse("quorumlock: node.Dial: the URL is empty: use redis://host:6379, or redis://user:password@host:6379/0")
	case hostAndPort.MatchString(rawURL):
		return errs.Misusef("quorumlock: node.Dial: the URL has no scheme: use redis://%s, or rediss:// for TLS", rawURL)
	case !strings.Contains(rawURL, "://") && !strings.HasPrefix(rawURL, "unix:"):
		return errs.Misuse("quorumlock: node.Dial: the URL has no scheme: use redis://host:6379, or redis://user:password@host:6379/0")
	}
	return nil
}

func address(o *redis.Options) string {
	name := o.Addr
	if o.Network == "unix" {
		name = "unix:" + name
	}
	if o.DB != 0 {
		name += fmt.Sprintf("/%d", o.DB)
	}
	return name
}
