package config

import (
	"reflect"
	"slices"
	"strings"
)

// ParseAgain reads the text of solobeat.yaml as [Load] reads the file, for a
// process that has begun with another one: the tasks are read under the
// settings in force (namespace, prefix, queues), whatever the text says of
// them. The Config that it returns has these settings, and the text's tasks;
// changed names the keys that the text sets otherwise, in order, and that count
// from the next start on.
func ParseAgain(path string, text []byte, env Lookup, inForce *Config) (c *Config, changed []string, ps Problems, err error) {
	next, ps, err := parseUnder(inForce, newDecoder(path), text, env)
	if err != nil {
		return nil, nil, ps, err
	}
	both := *inForce
	both.Tasks = next.Tasks
	return &both, changedKeys(inForce, next), ps, nil
}

// changedKeys are the keys outside tasks: whose values differ.
func changedKeys(a, b *Config) (keys []string) {
	names := map[string]string{} // by the name that the field gives
	for key := range (&configReader{d: newDecoder(""), c: &Config{}}).allLeaves() {
		names[bare(key)] = key
	}
	var walk func(prefix string, a, b reflect.Value)
	walk = func(prefix string, a, b reflect.Value) {
		for i := range a.NumField() {
			path, x, y := prefix+a.Type().Field(i).Name, a.Field(i), b.Field(i)
			switch key := names[bare(path)]; {
			case key != "":
				if !reflect.DeepEqual(x.Interface(), y.Interface()) {
					keys = append(keys, key)
				}
			case x.Kind() == reflect.Struct:
				walk(path+".", x, y)
			}
		}
	}
	walk("", reflect.ValueOf(*a), reflect.ValueOf(*b))
	slices.Sort(keys)
	return keys
}

// bare makes the path of a key and that of its field one: redis.results_url and
// Redis.ResultsURL.
func bare(path string) string { return strings.ToLower(strings.ReplaceAll(path, "_", "")) }

// Unreadable are the problems of a file that could not be read for err.
func Unreadable(path string, err error) Problems {
	return Problems{Problem{File: path, Message: readError(err), Cure: "put it back, readable"}.masked()}
}
