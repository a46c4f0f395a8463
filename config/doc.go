// Package config reads the two files that people write: solobeat.yaml (the
// process) and schedule.yaml (the jobs; told apart by its top-level jobs:).
//
// Reading is strict. Unknown and repeated keys, wrong types and values that
// cannot work are errors with file:line:col, the key's path and a cure, all
// found in one run ([Problems]). What is legal but probably not meant is a
// warning.
//
// Every key of solobeat.yaml has an environment variable made of its path,
// SOLOBEAT_REDIS_URL for redis.url; it wins over the file. The variables are
// enough to run without a file. A key that ends in url has a second form
// that ends in url_file and names a file to read it from, for secrets.
//
// The package sits on top: nothing but commands imports it.
package config
