package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"sigs.k8s.io/yaml"
)

// The chart keeps the users' rules as quorumlock acl prints them, for any of its flags.
func TestUsersAreThoseOfTheTool(t *testing.T) {
	const chart = "user default off\nuser probe on nopass resetkeys resetchannels -@all +ping\n"
	var users string
	for _, flags := range [][]string{
		nil,
		{"--user", "a", "--prefix", "a:", "--restart-guard"},
		{"--user", "b", "--prefix", "{b}:*?[", "--restart-guard", "--also", "check,list,database", "--server", "6.0"},
	} {
		users += acl(t, flags...)
		o := quorumlock.objects(t, values{"users": users, "restartGuardSeconds": 30})
		if got := o.secret.StringData["users.acl"]; got != chart+users {
			t.Errorf("the users are\n%s\nand want\n%s", got, chart+users)
		}
	}
}

// The error for a wrong value names the value and the fix.
func TestWrongValuesAreRefused(t *testing.T) {
	line := acl(t, "--user", "a", "--prefix", "a:")
	for _, tt := range []struct {
		values values
		want   []string
	}{
		{values{"nodes": 4}, []string{"'/nodes'", "one of 3, 5, 7"}},
		{values{"nodes": "3"}, []string{"'/nodes'", "one of 3, 5, 7"}},
		{values{"replicas": 3}, []string{"'replicas' not allowed"}},
		{values{"users": ""}, []string{"users: is empty: use --set-file users=FILE", "quorumlock acl"}},
		{values{"users": "user locker on >secret ~* +@all"}, []string{"users: line 1 is not from quorumlock acl --password-file"}},
		{values{"users": line + "\n" + line}, []string{"users: line 2 is not"}},
		{values{"users": strings.ReplaceAll(line, "user a ", "user probe ")}, []string{"users: line 1", "--user NAME"}},
		{values{"users": line, "restartGuardSeconds": 30}, []string{"users: line 1 lacks ~quorumlock_age, and restartGuardSeconds is 30", "acl --restart-guard"}},
		{values{"usersSecret": "x"}, []string{"usersSecret: users is set, too: leave one of them empty"}},
		{values{"restartGuardSeconds": "30s"}, []string{"'/restartGuardSeconds'", "want integer"}},
		{values{"restartGuardSeconds": -1}, []string{"'/restartGuardSeconds'", "want 0"}},
		{values{"storageGi": 2}, []string{"storageGi: 2 is less than three times memoryMi (1024): use 3 or more"}},
		{values{"memoryMi": 1 << 30}, []string{"memoryMi (1073741824): use 3145728 or more"}},
		{values{"memoryMi": "1Gi"}, []string{"'/memoryMi'", "want integer"}},
		{values{"cpuMilli": 0}, []string{"'/cpuMilli'", "want 1"}},
		{values{"image": ""}, []string{"'/image'"}},
		{values{"zones": 3}, []string{"'/zones'", "want boolean"}},
		{values{"clients": []any{}}, []string{"'/clients'", "want 1"}}, // Kubernetes takes an empty list for everybody
		{values{"clients": []any{values{}}}, []string{"'/clients/0'", "want 1"}},
		{values{"clients": []any{values{"pods": 1}}}, []string{"'/clients/0'", "'pods' not allowed"}},
	} {
		_, err := quorumlock.render(t, small(t, tt.values))
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %q", tt.values, err, want)
			}
		}
	}
	for _, name := range []string{strings.Repeat("x", 48), "1st", "a.b"} {
		_, err := release{name: name}.render(t, small(t))
		if want := "the release's name " + name + ": use a letter"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the release %s: %v", name, err)
		}
	}
}

// The schema knows each value of values.yaml, and values.yaml each of the schema.
func TestEveryValueIsExplained(t *testing.T) {
	c, err := loader.Load(dir)
	must(t, err)
	var schema struct{ Properties map[string]any }
	must(t, yaml.Unmarshal(c.Schema, &schema))
	delete(schema.Properties, "global") // of charts that contain this one
	want := slices.Sorted(maps.Keys(schema.Properties))
	if got := slices.Sorted(maps.Keys(c.Values)); !slices.Equal(got, want) {
		t.Errorf("values.yaml has %q, and the schema %q", got, want)
	}
	if got := slices.Sorted(maps.Keys(large(t))); !slices.Equal(got, want) {
		t.Errorf("the large rendering has %q of %q", got, want)
	}
}
