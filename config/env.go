package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/solobeat/solobeat/internal/typo"
)

// Lookup returns an environment variable; os.LookupEnv is one.
type Lookup func(name string) (string, bool)

const envPrefix = "SOLOBEAT_"

// envName is the variable of a key: SOLOBEAT_REDIS_URL for redis.url.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// readEnv reads the variables of all keys over what the file says.
func (r *configReader) readEnv(env Lookup) {
	if env == nil {
		return
	}
	var paths []string
	for p := range r.leaves {
		if value, set := env(envName(p)); set && strings.TrimSpace(value) != "" {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	r.dropOtherForms(paths)
	for _, p := range paths {
		value, _ := env(envName(p))
		n := r.envNode(envName(p), r.leaves[p].tag, value)
		r.at[p] = n
		r.leaves[p].read(n, n, p)
	}
}

// dropOtherForms forgets the file's redis.url where the environment names a
// file for it, and the other way round.
func (r *configReader) dropOtherForms(paths []string) {
	urls := map[string]*string{"redis.url": &r.c.Redis.URL, "redis.results_url": &r.c.Redis.ResultsURL, "redis.locks_url": &r.c.Redis.LocksURL}
	for url, into := range urls {
		if slices.Contains(paths, url) {
			*r.urlFiles[url] = ""
		}
		if slices.Contains(paths, url+"_file") {
			*into = ""
			delete(r.at, url)
		}
	}
}

// envNode is a variable's text as the YAML node that its key wants.
func (r *configReader) envNode(name, tag, value string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: strings.TrimSpace(value)}
	if _, err := strconv.Atoi(n.Value); tag == "!!int" && err != nil {
		n.Tag = "!!str" // so that messages do not call it a number
	}
	if tag == "!!seq" {
		n.Kind, n.Value = yaml.SequenceNode, ""
		for item := range strings.SplitSeq(value, ",") {
			c := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: strings.TrimSpace(item)}
			r.d.env[c] = name
			n.Content = append(n.Content, c)
		}
	}
	r.d.env[n] = name
	return n
}

// serviceRE are the variables that Kubernetes sets in each pod for a service
// whose name begins with solobeat: SOLOBEAT_WORKER_SERVICE_HOST and so on.
var serviceRE = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// CheckEnv warns of variables that begin with SOLOBEAT_ and mean nothing, with
// the nearest name that does. The argument is what os.Environ returns.
func CheckEnv(environ []string) Problems {
	r := &configReader{d: newDecoder(""), c: &Config{}, at: map[string]*yaml.Node{}}
	known := []string{"SOLOBEAT_CONFIG"}
	for path := range r.allLeaves() {
		known = append(known, envName(path))
	}
	slices.Sort(known)
	var ps Problems
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, envPrefix) || slices.Contains(known, name) || setByOthers(name) {
			continue
		}
		p := Problem{File: "environment variable " + name, Message: "no key has this name, and it is ignored", Cure: "unset it", Warning: true}
		if near := typo.Nearest(strings.TrimPrefix(name, envPrefix), trimAll(known)); near != "" {
			p.Cure = fmt.Sprintf("did you mean %s%s?", envPrefix, near)
		}
		ps = append(ps, p.masked())
	}
	ps.sort()
	return ps
}

// setByOthers knows the variables that are no configuration: what a run's
// program is told, the guardian's, the fail points of test binaries, and
// Kubernetes's own.
func setByOthers(name string) bool {
	switch name {
	case "SOLOBEAT_GUARDIAN", "SOLOBEAT_FAILPOINTS", "SOLOBEAT_CLOCK_OFFSET":
		return true
	}
	return strings.HasPrefix(name, "SOLOBEAT_RUN_") || serviceRE.MatchString(name)
}

func trimAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.TrimPrefix(s, envPrefix)
	}
	return out
}
