module steward/server

go 1.21
